"""Sound keeps its pitch and its length."""

import numpy as np
import pytest
import soundfile

from data import audio
from mistake import Mistake


def tone(hz, rate, seconds=0.5):
    return np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate).astype(np.float32)


def test_two_channels_are_mixed_to_one(tmp_path):
    both = np.stack([tone(440, 8000), np.zeros(4000, np.float32)], axis=1)
    soundfile.write(tmp_path / "x.wav", both, 8000, subtype="FLOAT")
    samples, rate = audio.read(tmp_path / "x.wav")
    assert rate == 8000
    np.testing.assert_allclose(samples, both[:, 0] / 2, atol=1e-6)


def test_ogg_is_read(tmp_path):
    soundfile.write(tmp_path / "x.ogg", 0.5 * tone(440, 44100), 44100, format="OGG", subtype="VORBIS")
    samples, rate = audio.read(tmp_path / "x.ogg")
    assert (rate, samples.dtype) == (44100, np.float32)
    spectrum = np.abs(np.fft.rfft(samples))
    assert abs(np.argmax(spectrum) * rate / len(samples) - 440) < 2
    assert abs(np.abs(samples).max() - 0.5) < 0.05


@pytest.mark.parametrize("rate", [11025, 22050, 44100, 48000, 16000])
def test_a_tone_is_the_same_tone_at_another_rate(rate):
    resampled = audio.resample(tone(1000, rate), rate, 16000)
    assert len(resampled) == -(-round(rate * 0.5) * 16000 // rate)
    middle = slice(800, 7200)  # the filter knows nothing beyond the ends
    np.testing.assert_allclose(resampled[middle], tone(1000, 16000)[middle], atol=5e-3)


def test_what_is_too_high_for_the_new_rate_is_gone_and_not_folded_back():
    resampled = audio.resample(tone(10000, 44100), 44100, 16000)
    assert np.abs(resampled[800:7200]).max() < 1e-2


def test_samples_of_sixteen_bits_come_back():
    samples = np.asarray([-1, -0.5, 0, 0.25, 32767 / 32768], np.float32)
    np.testing.assert_array_equal(audio.to_int16(samples), [-32768, -16384, 0, 8192, 32767])
    np.testing.assert_array_equal(audio.as_float(audio.to_int16(samples), "x"), samples)
    np.testing.assert_array_equal(audio.to_int16(np.asarray([-3.0, 3.0])), [-32768, 32767])
    # TFDS gives what it stores as integers of 64 bits.
    np.testing.assert_array_equal(audio.as_float(audio.to_int16(samples).astype(np.int64), "x"), samples)
    np.testing.assert_array_equal(audio.as_float(samples, "x"), samples)


@pytest.mark.parametrize("samples", [np.zeros((4, 2), np.int16), np.asarray(["a"]), b"OggS"])
def test_what_is_no_sound_is_a_mistake(samples):
    with pytest.raises(Mistake, match="^x.audio: a record's field is .*, not samples of one channel"):
        audio.as_float(samples, "x.audio")
