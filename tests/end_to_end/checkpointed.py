"""Reads a checkpoint's weights without the code under test: Orbax alone."""

import pathlib

import numpy as np
import orbax.checkpoint as ocp


def weights(workdir: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    """Every array of the training state at `step`, by path."""
    tree = ocp.PyTreeCheckpointer().restore(workdir / "checkpoints" / str(step) / "state")
    flat: dict[str, np.ndarray] = {}

    def collect(path: str, node) -> None:
        if isinstance(node, dict):
            for key, child in node.items():
                collect(f"{path}/{key}", child)
        elif isinstance(node, (list, tuple)):
            for index, child in enumerate(node):
                collect(f"{path}/{index}", child)
        elif node is not None:
            flat[path] = np.asarray(node)

    collect("", tree)
    return flat
