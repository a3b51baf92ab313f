"""From flags to a Program: the configuration is read, its devices settled, everything it names constructed and checked."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence

import gin
import jax

from mistake import Mistake
from parallel.layout import Layout
from parallel.mesh import MeshAxes
from parallel.modes import CONFIGURABLES, Modes
from parallel.remat import Remat
from training import catalogue, config, hosts  # noqa: F401  catalogue registers what gin may name
from training.checkpoint import CheckpointPolicy
from training.devices import hide_absent_tpu, simulate
from training.experiment import Experiment
from training.flags import Flags
from training.precision import Precision
from training.program import Program
from training.prove import Proof

# What is constructed here, beside what gin files refer to.
_CONSTRUCTED = ("mesh", *CONFIGURABLES, "remat", "precision", "experiment", "batch", "checkpoint", "prove")
_ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Setup:
    """A configuration, and what was constructed from it."""

    config: config.Config
    program: Program
    policy: CheckpointPolicy
    proof: Proof
    mesh: MeshAxes


def read(flags: Flags, files: Sequence[str] = (), bindings: Sequence[str] = ()) -> config.Config:
    """The flags' configuration with `files` and `bindings` on top."""
    return config.load(
        [*flags.gin_files, *files], [*flags.bindings, *bindings], roots=[str(_ROOT)], constructs=_CONSTRUCTED
    )


@contextlib.contextmanager
def located(configuration: config.Config) -> Iterator[None]:
    """A Mistake raised within it says where what it complains of was written."""
    try:
        yield
    except Mistake as mistake:
        raise Mistake(configuration.point(config.clean(mistake))) from None


def build(
    flags: Flags,
    files: Sequence[str] = (),
    bindings: Sequence[str] = (),
    *,
    devices: Callable[[], Sequence[jax.Device]] | None = jax.devices,
) -> Setup:
    """Reads and constructs all; every tensor is resolved, and nothing is allocated.

    devices: gives those to lay the mesh over, once it is settled how many are simulated; None needs no device where
    mesh.axes says every size.
    """
    configuration = read(flags, files, bindings)
    with located(configuration):
        mesh = MeshAxes()
        _simulate(flags, mesh)
        modes = {scope: _modes(scope) for scope in ("", *_scopes(configuration))}
        if devices is not None:
            grid = mesh.build(devices())
            sizes = dict(zip(grid.axis_names, grid.devices.shape, strict=True))
        else:
            grid, sizes = None, mesh.sizes(_devices_to_count_on(flags, mesh))
        layout = Layout(sizes, modes, Remat(), grid, origin=configuration.origin)
        experiment, precision, policy, proof = Experiment(), Precision(), CheckpointPolicy(), Proof()
        configuration.check_read()
        program = Program(experiment, layout, precision)
        policy.check(program.metrics)
        if grid is not None:
            _check_same_everywhere(configuration)
        return Setup(configuration, program, policy, proof, mesh)


def _check_same_everywhere(configuration: config.Config) -> None:
    hosts.check_joined()
    hosts.same("the configuration", configuration.operative(), "Start every process with the same flags and gin files.")


def _scopes(configuration: config.Config) -> list[str]:
    """Of the parts that the configuration says anything about."""
    return list(dict.fromkeys(scope for name in CONFIGURABLES for scope in configuration.scopes(name)))


def _modes(scope: str) -> Modes:
    with gin.config_scope(scope or None):
        return Modes(**{field: make() for field, make in CONFIGURABLES.items()})


def _simulate(flags: Flags, mesh: MeshAxes) -> None:
    """Must come before the first look at the devices; later calls, of the same number, change nothing."""
    hide_absent_tpu()
    count = flags.simulated_devices or mesh.simulated_devices
    if count:
        simulate(count, force=flags.simulated_devices is not None)


def _devices_to_count_on(flags: Flags, mesh: MeshAxes) -> int | None:
    if mesh.num_devices:
        return mesh.num_devices
    if not mesh.needs_devices:
        return None
    return flags.simulated_devices or len(jax.devices())
