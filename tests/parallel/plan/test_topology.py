"""Described machines: as many devices as they have, and what is not one refused."""

import pytest

from mistake import Mistake
from parallel.plan.topology import described_devices


@pytest.mark.parametrize(("topology", "devices", "kind"), [("v5e:2x4", 8, "TPU v5 lite"), ("v4:2x2x4", 16, "TPU v4")])
def test_a_described_machine_has_its_devices(topology, devices, kind):
    found = described_devices(topology)
    assert (len(found), {device.device_kind for device in found}) == (devices, {kind})


@pytest.mark.parametrize("topology", ["v5e", "v5e:2*4", "8", "v5e:3x5"])
def test_what_is_no_topology_is_refused(topology):
    with pytest.raises(Mistake, match="--topology: "):
        described_devices(topology)
