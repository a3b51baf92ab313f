"""Devices of a described machine, which programs can be compiled for and not run on."""

import os
import re

import jax
from jax.experimental import topologies

from mistake import Mistake

# v4 and v5p show one device a chip only in this configuration; the others have no other.
_MEGACORE = ("v4", "v5p")
_SHAPE = re.compile(r"(?P<chip>v\w+):(?P<shape>\d+(x\d+)*)")


def described_devices(topology: str) -> list[jax.Device]:
    """The devices of `topology`, 'v5e:2x4' or 'v4:8x16x16', without any being there: libtpu, the TPU compiler, describes
    them on any x86-64 Linux.

    Raises Mistake when it is written otherwise, libtpu is not installed, or no such machine exists.
    """
    found = _SHAPE.fullmatch(topology)
    if found is None:
        raise Mistake(f"--topology: {topology!r} is not a TPU topology. Write chip:shape, such as 'v5e:2x4'.")
    # libtpu would else look for the machine it is on, and complain that it is on none.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    # A chip is one process's; a description is anybody's.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    options = {"chip_config_name": "megacore"} if found["chip"] in _MEGACORE else {}
    try:
        description = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
    except Exception as error:
        if "libtpu" in str(error).lower() and "not" in str(error).lower():
            raise Mistake("--topology: the TPU compiler is not installed. Run: uv sync --extra plan") from error
        raise Mistake(f"--topology: {topology!r} can't be described: {str(error).splitlines()[0]}") from error
    return list(description.devices)
