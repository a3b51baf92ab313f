"""The training step of a configuration, compiled by the TPU compiler for eight described chips, and read."""

import dataclasses
import functools

import jax

from parallel.plan.hlo import Collective
from parallel.plan.hlo import Program as Compiled
from parallel.plan.topology import described_devices
from training.flags import parse
from training.modes import MODES
from training.program import Program
from training.setup import build

TOPOLOGY = "v5e:2x4"


@dataclasses.dataclass(frozen=True)
class Step:
    """A compiled step. arguments, temporary: bytes on one device, as the compiler counts them."""

    program: Program
    compiled: Compiled
    arguments: int
    temporary: int

    @property
    def mesh(self) -> dict[str, int]:
        """Size of each mesh axis."""
        return self.program.layout.sizes

    def collectives(self, *kinds: str, over: str | None = None) -> list[Collective]:
        """Those of `kinds` (none given: all) that cross the mesh axis `over`."""
        return [
            c
            for c in self.compiled.collectives
            if (not kinds or c.kind in kinds) and (over is None or over in c.axes(self.mesh))
        ]


@functools.cache
def compiled_step(gin_file: str, *bindings: str, layout: str | None = None) -> Step:
    """The step of `gin_file` with the layout configs/parallel/`layout`.gin on top."""
    files = [f"--gin_file={gin_file}"] + ([f"--gin_file=configs/parallel/{layout}.gin"] if layout else [])
    flags = parse([*files, *(f"--gin.{binding}" for binding in bindings)], MODES)
    program = build(flags, devices=lambda: described_devices(TOPOLOGY)).program
    # The cache of compiled programs can't hold those of devices that are not there.
    jax.config.update("jax_enable_compilation_cache", False)
    compiled = program.lower_train_step().compile()
    jax.config.update("jax_enable_compilation_cache", True)
    memory = compiled.memory_analysis()
    return Step(program, Compiled(compiled.as_text()), memory.argument_size_in_bytes, memory.temp_size_in_bytes)
