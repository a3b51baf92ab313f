"""Which devices a run has: real ones, or CPU devices simulated on a laptop. Must be settled before JAX touches its
backend.
"""

import glob
import os

import jax

# A machine of its own: else libtpu asks the network which one it is on.
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    # A chip is one process's; where there is none, libtpu is anybody's.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def simulate(num_devices: int, *, force: bool) -> None:
    """Makes the CPU backend show `num_devices` devices, of each process; `force` uses it even where there are accelerators.

    Devices that share few cores reach a collective far apart, so XLA's time-outs for that are raised.
    """
    flags = "--xla_cpu_collective_call_warn_stuck_timeout_seconds=120 --xla_cpu_collective_call_terminate_timeout_seconds=1200"
    if "collective_call_terminate_timeout" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    if force:
        jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", num_devices)


def hide_absent_tpu() -> None:
    """Where no TPU is, lets libtpu, which may be here to plan with, say nothing of it. Before JAX touches its backend."""
    if not any(glob.glob(pattern) for pattern in ("/dev/accel*", "/dev/vfio/[0-9]*")):
        for name, value in _NO_TPU.items():
            os.environ.setdefault(name, value)


def describe() -> str:
    """What the run is on, for people: '8 simulated cpu devices on 2 cores', '4 x NVIDIA H100', ..."""
    devices = jax.devices()
    if devices[0].platform != "cpu":
        return f"{len(devices)} x {devices[0].device_kind}{_processes()}"
    if len(devices) == 1:
        return f"1 CPU device, {os.cpu_count()} cores"
    return f"{len(devices)} simulated CPU devices{_processes()} on {os.cpu_count()} cores"


def _processes() -> str:
    return f" in {jax.process_count()} processes" if jax.process_count() > 1 else ""
