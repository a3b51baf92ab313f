"""Sound: recordings to samples, samples to another rate."""

import math
from pathlib import Path

import numpy as np

from mistake import Mistake


def read(file: Path) -> tuple[np.ndarray, int]:
    """The samples of a recording, float32 [N] within [-1, 1], several channels mixed to one, and their rate in Hz.

    What libsndfile reads: Ogg, FLAC, WAV, MP3.
    """
    import soundfile  # loads a library, so only when wanted

    samples_NC, rate = soundfile.read(file, dtype="float32", always_2d=True)
    return samples_NC.mean(axis=1), rate


def resample(samples_N: np.ndarray, rate: int, to: int) -> np.ndarray:
    """Samples at `rate` Hz -> float32 at `to` Hz, ceil(N * to / rate) of them.

    By a polyphase low-pass filter (SciPy's `resample_poly`: windowed sinc, Kaiser with beta 5, no shift in time), so
    nothing above half of the lower rate is folded back.
    """
    from scipy.signal import resample_poly  # half a second to import

    common = math.gcd(rate, to)
    return resample_poly(samples_N, to // common, rate // common).astype(np.float32)


def to_int16(samples_N: np.ndarray) -> np.ndarray:
    """Float samples within [-1, 1] -> int16; what lies beyond is cut off."""
    return np.rint(np.clip(samples_N, -1, 32767 / 32768) * 32768).astype(np.int16)


def as_float(samples_N: np.ndarray, binding: str) -> np.ndarray:
    """A record's samples [N] -> float32: integers are taken to be of 16 bits, and become [-1, 1].

    Raises Mistake, beginning with `binding`, for what is no such array.
    """
    samples_N = np.asarray(samples_N)
    if samples_N.ndim != 1 or samples_N.dtype.kind not in "if":
        shape = list(samples_N.shape)
        raise Mistake(f"{binding}: a record's field is {samples_N.dtype} {shape}, not samples of one channel [N].")
    return samples_N.astype(np.float32) / (32768 if samples_N.dtype.kind == "i" else 1)
