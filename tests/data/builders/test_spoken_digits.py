"""Recordings become samples of one rate, each language in one split."""

import numpy as np
import pytest
import soundfile

from data.builders import spoken_digits
from data.sources import TFDS
from tests.data.builders.prepare import prepared

LANGUAGES = ["be", "bg", "ca", "de", "el", "en", "es", "fr", "it", "ja", "ko"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("3.ogg", (3, "en")),
        ("3_en_GB.ogg", (3, "en")),
        ("0_fr.ogg", (0, "fr")),
        ("9_desc_fr.ogg", (9, "fr")),
        ("7_zh_tw.ogg", (7, "zh")),
    ],
)
def test_a_files_name_says_digit_and_language(file, expected):
    assert spoken_digits.parse(file) == expected


def test_each_language_is_in_one_split():
    parts = spoken_digits.splits(LANGUAGES * 2)
    assert sorted(language for held in parts.values() for language in held) == LANGUAGES
    assert {split: len(held) for split, held in parts.items()} == {"train": 5, "validation": 3, "test": 3}


def test_the_set_is_read_back(tmp_path):
    hz = {language: 300 + 100 * n for n, language in enumerate(LANGUAGES)}
    for n, language in enumerate(LANGUAGES):
        rate = (11025, 22050, 44100, 48000)[n % 4]
        tone = 0.5 * np.sin(2 * np.pi * hz[language] * np.arange(rate // 5) / rate)
        channels = tone if n % 2 else np.stack([tone, tone], axis=1)
        name = f"{n % 10}.ogg" if language == "en" else f"{n % 10}_{language}.ogg"
        soundfile.write(tmp_path / name, channels, rate, format="OGG", subtype="VORBIS")
    data_dir = prepared("spoken_digits", tmp_path)
    seen = []
    for split in ("train", "validation", "test"):
        records = TFDS("spoken_digits", data_dir=data_dir).open(split)
        languages = {records[n]["language"].decode() for n in range(len(records))}
        assert languages == set(spoken_digits.splits(LANGUAGES)[split])
        seen += [records[n] for n in range(len(records))]
    for record in seen:
        language = record["language"].decode()
        samples = np.asarray(record["audio"])
        assert (samples.dtype, samples.shape) == (np.int16, (3200,))
        assert int(record["label"]) == LANGUAGES.index(language) % 10
        loudest = np.argmax(np.abs(np.fft.rfft(samples * np.hanning(3200)))) * 16000 / 3200
        assert abs(loudest - hz[language]) <= 5
        assert 14000 < np.abs(samples.astype(int)).max() < 19000
    assert len(seen) == len(LANGUAGES)
