"""Images to tokens: patches, where they stand, and the class token (Dosovitskiy et al. 2020, section 3.1)."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mistake import Mistake
from models.layers.embedding import Embedding
from models.layers.initializers import ZEROS, FanIn, TruncatedNormal
from parallel.annotate import Randomness, convolve, dropout, param, shard

# Rows and columns, in that order.
Size = tuple[int, int]
Positions = Literal["learned", "sincos"]


def pair(size: int | tuple[int, int], binding: str) -> Size:
    """(rows, columns) of a size that may be one number for both; Mistake, beginning with `binding`, for no size."""
    both = (size, size) if isinstance(size, int) else tuple(size)
    if len(both) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in both):
        raise Mistake(f"{binding}: {size!r} is not a size. It must be a positive number, or (rows, columns) of them.")
    return both


def sincos_2d(grid: Size, width: int) -> np.ndarray:
    """float32 [rows * columns, width]: sines and cosines of the column, then of the row, a quarter of the width each;
    wavelengths from 2 pi to 10000 * 2 pi (Beyer et al. 2022, 'Better plain ViT baselines for ImageNet-1k').
    """
    quarter = width // 4
    frequency = 10000.0 ** (-np.arange(quarter) / max(quarter - 1, 1))
    row, column = (at.reshape(-1, 1) * frequency for at in np.mgrid[: grid[0], : grid[1]])
    parts = (np.sin(column), np.cos(column), np.sin(row), np.cos(row))
    return np.concatenate(parts, axis=1).astype(np.float32)


class Patches(nnx.Module):
    """Each patch times one matrix, as a convolution that steps by whole patches. [B, H, W, C] -> [B, h, w, D].

    names: the logical axes of the images.
    """

    def __init__(self, *, patch: Size, channels: int, width: int, names: tuple[str, ...], init):
        self.strides, self.names = patch, names
        self.kernel = param(
            (*patch, channels, width),
            ("kernel_height", "kernel_width", "in_channels", "embed"),
            init or FanIn(3),
        )
        self.bias = param((width,), ("embed",), ZEROS)

    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        kernel = self.kernel[...].astype(x_BHWC.dtype)
        options = {"strides": self.strides, "padding": "VALID", "names": self.names, "name": "patches"}
        return convolve(x_BHWC, kernel, **options) + self.bias[...].astype(x_BHWC.dtype)


class PatchEmbedding(nnx.Module):
    """Images to tokens in rows, the class token first: [B, H, W, C] -> [B, S, D], S = h * w (+ 1).

    Args:
      size: of the images: exact for learned positions; others take any size of whole patches.
      patch: rows and columns of a patch.
      class_token: whether a learned token comes first. With learned positions it has one of its own, row 0.
      positions: 'learned', a table; 'sincos', `sincos_2d`.
      names: the logical axes of the images.
      bindings: what Mistakes call the size, the channels and the width.

    Raises Mistake for a size that is not of whole patches, here and when called.
    """

    def __init__(
        self,
        *,
        size: Size,
        patch: Size,
        channels: int,
        width: int,
        class_token: bool,
        positions: Positions,
        dropout_rate: float,
        names: tuple[str, ...],
        bindings: tuple[str, str, str],
        init,
    ):
        self.size, self.channels, self.width, self.dropout_rate = size, channels, width, dropout_rate
        self.bindings, self.patch_size = bindings, patch
        if positions == "sincos" and width % 4:
            fits = [n for n in (width // 4 * 4, width // 4 * 4 + 4) if n]
            raise Mistake(
                f"{bindings[2]}: 'sincos' positions need four equal parts of {width}. Widths that fit: {fits}."
            )
        rows, columns = self.grid(size)
        self.patch = Patches(patch=patch, channels=channels, width=width, names=names, init=init)
        table = init or TruncatedNormal(0.02)
        self.class_token = param((width,), ("embed",), table) if class_token else None
        self.position = (
            Embedding(rows * columns + class_token, width, rows_name="position", init=table)
            if positions == "learned"
            else None
        )

    def grid(self, size: Size) -> Size:
        """Rows and columns of patches in images of `size`."""
        for what, n, p in zip(("rows", "columns"), size, self.patch_size, strict=True):
            if n % p:
                fits = ", ".join(str(m) for m in (n // p * p, n // p * p + p) if m)
                raise Mistake(
                    f"{self.bindings[0]}: {size} has {n} {what}, which patches of {p} don't divide. Numbers that fit: {fits}."
                )
        return size[0] // self.patch_size[0], size[1] // self.patch_size[1]

    def __call__(self, x_BHWC: jax.Array, dtype: jnp.dtype, randomness: Randomness | None = None) -> jax.Array:
        batch, *size, channels = x_BHWC.shape
        if channels != self.channels:
            raise Mistake(f"{self.bindings[1]}: {self.channels}, and the batch has {channels}. Set it to that.")
        if self.position is not None and tuple(size) != self.size:
            raise Mistake(f"{self.bindings[0]}: {self.size}, and the batch has {tuple(size)}. Set it to that.")
        grid = self.grid(tuple(size))
        x_BSD = self.patch(x_BHWC.astype(dtype)).reshape(batch, grid[0] * grid[1], self.width)
        if self.position is None:
            x_BSD += jnp.asarray(sincos_2d(grid, self.width), dtype)
        if self.class_token is not None:
            token_B1D = jnp.broadcast_to(self.class_token[...].astype(dtype), (batch, 1, self.width))
            x_BSD = jnp.concatenate([token_B1D, x_BSD], axis=1)
        if self.position is not None:
            x_BSD += self.position.table[...].astype(dtype)
        x_BSD = dropout(x_BSD, self.dropout_rate, randomness, "embeddings")
        return shard(x_BSD, "batch", "length", "embed", name="embeddings")
