"""Copies of the made-up corpus in the forms that TIMIT comes in."""

import shutil
from pathlib import Path

import numpy as np
import soundfile

from actlab.datamodules.speech.features import RATE
from actlab.storage.resources import resource


def write_corpus(folder: Path, upper: bool = False, riff: bool = False) -> Path:
    """The made-up corpus; names in upper case, recordings as RIFF files."""
    shutil.copytree(resource("data/samples") / "timit", folder)
    if riff:
        for path in folder.rglob("*.wav"):
            soundfile.write(
                path, soundfile.read(path, dtype="int16")[0], RATE, format="WAV", subtype="PCM_16"
            )
    if upper:
        for path in sorted(folder.rglob("*"), key=lambda p: len(p.parts), reverse=True):
            path.rename(path.with_name(path.name.upper()))
    return folder


def write_nltk_layout(folder: Path, speakers: int = 16) -> Path:
    """The made-up corpus' training speakers in the layout of NLTK's sample."""
    source = folder.with_name(f"{folder.name}-source")
    shutil.copytree(resource("data/samples") / "timit", source)
    folder.mkdir()
    for home in sorted(source.glob("train/dr*/*"))[:speakers]:
        home.rename(folder / f"{home.parent.name}-{home.name}")
    shutil.rmtree(source)
    return folder


def tone(samples: int = 3000, hertz: float = 440.0) -> np.ndarray:
    """A tone with some noise, int16."""
    noise = np.random.default_rng(0).normal(0, 50, samples)
    return (3000 * np.sin(2 * np.pi * hertz * np.arange(samples) / RATE) + noise).astype(np.int16)
