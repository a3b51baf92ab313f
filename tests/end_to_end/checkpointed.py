"""Reads a checkpoint's weights without the code under test: Orbax alone."""

import pathlib

import jax
import numpy as np
import orbax.checkpoint as ocp


def weights(workdir: pathlib.Path, step: int) -> dict[str, np.ndarray]:
    """Every array of the training state at `step`, by path."""
    folder, reader = workdir / "checkpoints" / str(step) / "state", ocp.PyTreeCheckpointer()
    # As NumPy's: the devices that wrote it may not be here.
    whole = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), reader.metadata(folder).item_metadata.tree)
    tree = reader.restore(folder, restore_args=whole)
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
