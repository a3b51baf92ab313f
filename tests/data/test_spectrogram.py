"""Log-mel spectrograms against the definition, written out in loops."""

import math

import numpy as np
import pytest

from data.spectrogram import LogMel, mel_bands


def reference(samples, rate, mels, size):
    """Frame by frame, frequency by frequency, band by band; no FFT, no matrix. `size`: of the transform."""
    window, hop = round(0.025 * rate), round(0.010 * rate)

    def mel(hz):
        return 2595 * math.log10(1 + hz / 700)

    corners = [
        700 * (10 ** ((mel(20) + n * (mel(rate / 2) - mel(20)) / (mels + 1)) / 2595) - 1) for n in range(mels + 2)
    ]
    out = []
    for start in range(0, max(len(samples) - window, 0) + 1, hop):
        power = []
        for k in range(size // 2 + 1):
            real = imaginary = 0.0
            for n in range(min(window, len(samples) - start)):
                weighted = samples[start + n] * (0.5 - 0.5 * math.cos(2 * math.pi * n / window))
                real += weighted * math.cos(2 * math.pi * k * n / size)
                imaginary -= weighted * math.sin(2 * math.pi * k * n / size)
            power.append(real**2 + imaginary**2)
        frame = []
        for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
            total = 0.0
            for k, value in enumerate(power):
                hz = k * rate / size
                if low < hz <= middle:
                    total += value * (hz - low) / (middle - low)
                elif middle < hz < high:
                    total += value * (high - hz) / (high - middle)
            frame.append(math.log(max(total, 1e-6)))
        out.append(frame)
    return np.asarray(out)


@pytest.mark.parametrize("samples", [1, 50, 99, 100, 139, 140, 300])
def test_it_is_the_direct_transform(samples):
    # 25 ms are 100 samples, 10 ms are 40; a transform of 128 holds the window and fills 8 bands.
    x = np.random.default_rng(samples).normal(scale=0.1, size=samples).astype(np.float32)
    got = LogMel(4000, 8)(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, reference(x.tolist(), 4000, 8, 128), rtol=1e-5, atol=1e-5)


def test_many_bands_take_a_longer_transform():
    x = np.random.default_rng(0).normal(scale=0.1, size=100).astype(np.float32)
    assert not mel_bands(4000, 100, 128).any(axis=0).all()  # some bands hold no frequency
    got = LogMel(4000, 100)(x)
    size = next(size for size in (256, 512, 1024) if mel_bands(4000, 100, size).any(axis=0).all())
    np.testing.assert_allclose(got, reference(x.tolist(), 4000, 100, size), rtol=1e-5, atol=1e-5)


def test_silence_has_a_logarithm():
    np.testing.assert_allclose(LogMel(16000, 64)(np.zeros(16000, np.float32)), np.full((98, 64), math.log(1e-6)))


def test_a_tone_is_in_the_band_of_its_pitch():
    x = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    # 1000 Hz is 1000 mel in HTK's formula, to a hundredth; the bands' middles are evenly spaced from 31.7 to 2840 mel.
    lowest, highest = 31.75, 2840.02
    nearest = round((999.99 - lowest) / (highest - lowest) * 65) - 1
    assert (np.argmax(LogMel(16000, 64)(x.astype(np.float32)), axis=1) == nearest).all()


@pytest.mark.parametrize("samples", [1, 400, 559, 560, 16000])
def test_the_frames_are_counted_without_making_them(samples):
    log_mel = LogMel(16000, 32)
    assert log_mel.frames(samples) == len(log_mel(np.zeros(samples, np.float32)))


def test_so_many_samples_make_so_many_frames():
    log_mel = LogMel(16000, 32)
    for frames in (1, 2, 144):
        assert log_mel.frames(log_mel.samples(frames)) == frames
        assert frames == 1 or log_mel.frames(log_mel.samples(frames) - 1) == frames - 1
