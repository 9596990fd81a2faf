"""Make ``data/samples/timit``: a small synthetic corpus in TIMIT's format, with tones as phones.

TIMIT is licensed, so actlab contains no part of it. The sample has TIMIT's file formats, folder
names and names of core test speakers, which define the test part. The other speakers are invented.

    python data/make_timit_sample.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from actlab.datamodules.speech.corpus import CORE
from actlab.datamodules.speech.features import RATE, Phone
from actlab.datamodules.speech.phones import PHONES, SILENCE

LENGTH = 6400  # audio samples of a sentence
SENTENCES = ("si900", "si1500", "si2100", "sx1", "sx91", "sx181", "sx271", "sx361")


def phones_of(number: int) -> list[Phone]:
    """Return the phones of a sentence: silence, six of the other 60 in turn, a long silence."""
    others = [phone for phone in PHONES if phone != SILENCE]
    labels = [SILENCE, *(others[(6 * number + k) % len(others)] for k in range(6)), SILENCE]
    begins = [0, *(700 + 820 * k + 37 * (k * number % 5) for k in range(7))]
    return list(zip(begins, [*begins[1:], LENGTH - 16], labels, strict=True))


def recording_of(phones: list[Phone], pitch: float) -> NDArray[np.int16]:
    """Return a recording with two tones per phone, faint in silence, of frequencies × ``pitch``."""
    sound = np.zeros(LENGTH)
    for begin, end, label in phones:
        row, column = divmod(PHONES.index(label), 8)
        seconds = np.arange(begin, end) / RATE
        for hertz in (250 + 90 * column, 1200 + 600 * row):
            sound[begin:end] += (8 if label == SILENCE else 2500) * np.sin(
                2 * np.pi * pitch * hertz * seconds
            )
    return np.rint(sound).astype(np.int16)


def main() -> None:
    """Write the corpus of 2 MB: 128 sentences for training, 8 for validation and 8 for test."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "samples" / "timit"
    regions = enumerate("abcdefgh", 1)
    # Two speakers per region are for training, one each for validation and test in dr1.
    speakers = [f"train/dr{number}/{sex}aa{letter}0" for number, letter in regions for sex in "fm"]
    for speaker_number, speaker in enumerate([*speakers, "test/dr1/fzzz0", f"test/dr1/{CORE[0]}"]):
        home = folder / speaker
        home.mkdir(parents=True, exist_ok=True)
        for sentence_number, name in enumerate(SENTENCES):
            phones = phones_of(len(SENTENCES) * speaker_number + sentence_number)
            recording = recording_of(phones, pitch=0.95 + 0.01 * (speaker_number % 11))
            soundfile.write(home / f"{name}.wav", recording, RATE, "PCM_16", "LITTLE", "NIST")
            lines = (f"{begin} {end} {label}\n" for begin, end, label in phones)
            (home / f"{name}.phn").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
