"""Log-mel spectrograms: what audio towers see of a sound."""

import numpy as np

_WINDOW_SECONDS, _HOP_SECONDS = 0.025, 0.010
_LOWEST_HZ = 20.0
_FLOOR = 1e-6  # of a band's power: digital silence has a logarithm too


class LogMel:
    """Samples float32 [N] -> float32 [T, M]: the logarithm of the power in M mel bands, a frame each 10 ms.

    A frame is 25 ms under a periodic Hann window; there are 1 + (N - window) // hop, at least one: shorter sound is
    filled up with silence. Power is |DFT|^2 of the frame, filled up with zeros to a power of two. Bands are triangles over
    frequency whose corners are spaced evenly in mel = 2595 log10(1 + Hz / 700) (the formula of HTK; Young et al., 'The HTK
    Book', section 5.4), from 20 Hz to half the rate, each of height 1. Where many bands leave a triangle between two
    frequencies of the transform, the frame is filled up further, so that none is always empty.

    Args:
      sample_rate: of the samples, Hz.
      mels: M.
    """

    def __init__(self, sample_rate: int, mels: int):
        assert sample_rate > 2 * _LOWEST_HZ and mels > 0
        self._window = round(_WINDOW_SECONDS * sample_rate)
        self._hop = round(_HOP_SECONDS * sample_rate)
        self._hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self._window) / self._window)
        self._size = 1 << (self._window - 1).bit_length()
        while not (bands := mel_bands(sample_rate, mels, self._size)).any(axis=0).all():
            self._size *= 2
        # A band holds few of the frequencies: band by band is less work than one product of matrices, and wakes no threads.
        held = [np.flatnonzero(weights_F) for weights_F in bands.T]
        self._bands = [(slice(at[0], at[-1] + 1), bands[at[0] : at[-1] + 1, m]) for m, at in enumerate(held)]

    def frames(self, samples: int) -> int:
        """T of so many samples."""
        return 1 + max(samples - self._window, 0) // self._hop

    def samples(self, frames: int) -> int:
        """How many samples `frames` frames see."""
        return self._window + (frames - 1) * self._hop

    def __call__(self, samples_N: np.ndarray) -> np.ndarray:
        short = self._window - len(samples_N)
        if short > 0:
            samples_N = np.pad(samples_N, (0, short))
        windows_TW = np.lib.stride_tricks.sliding_window_view(samples_N, self._window)[:: self._hop]
        power_TF = np.abs(np.fft.rfft(windows_TW * self._hann, self._size)) ** 2
        power_TM = np.stack([power_TF[:, held] @ weights for held, weights in self._bands], axis=1)
        return np.log(np.maximum(power_TM, _FLOOR)).astype(np.float32)


def mel_bands(sample_rate: int, mels: int, size: int) -> np.ndarray:
    """float64 [size // 2 + 1, mels]: how much of each frequency of a transform of `size` goes into each band."""
    lowest, highest = (2595 * np.log10(1 + hz / 700) for hz in (_LOWEST_HZ, sample_rate / 2))
    corners_M2 = 700 * (10 ** (np.linspace(lowest, highest, mels + 2) / 2595) - 1)
    left, middle, right = corners_M2[:-2], corners_M2[1:-1], corners_M2[2:]
    hz_F1 = (np.arange(size // 2 + 1) * sample_rate / size)[:, None]
    return np.maximum(0, np.minimum((hz_F1 - left) / (middle - left), (right - hz_F1) / (right - middle)))
