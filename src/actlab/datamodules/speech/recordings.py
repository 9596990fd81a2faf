"""Read the two files of a sentence: the recording (NIST SPHERE or RIFF) and its phones."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actlab.datamodules.speech.features import RATE, WINDOW, Phone
from actlab.datamodules.speech.phones import CLASS_OF
from actlab.errors import ActlabError
from actlab.errors.messages import reason
from actlab.storage.files import regular

SPHERE = b"NIST_1A\n"
REMEDY = "Copy it from the corpus again"
_COUNT = re.compile(rb"^sample_count -i (\S+)", re.MULTILINE)  # in a SPHERE header
_PHONE = re.compile(r"\s*([0-9]{1,11})\s+([0-9]{1,11})\s+(\S+)\s*")
_MOST_UNLABELLED = RATE // 2  # upper limit of audio samples after the last phone


def contents(path: Path) -> bytes:
    """Return the bytes of a file, or raise an ActlabError."""
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise ActlabError(
            f"{path} cannot be read ({reason(error)}). {REMEDY}."
        ) from error


def read_recording(path: Path) -> NDArray[np.int16]:
    """Return the audio samples, int16 ``(S,)``, of a NIST SPHERE or RIFF file.

    Raises:
        ActlabError: if the file is damaged, or not 16-bit PCM, mono, at 16 kHz.
    """
    import soundfile

    packed = contents(path)
    form: tuple[int, int, str] | None = None
    samples = np.empty(0, np.int16)
    declared = 0
    with suppress(soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        # Open by path: for bytes in memory, the library uses callbacks that print a
        # traceback on damaged data.
        with soundfile.SoundFile(regular(path)) as file:
            form = file.samplerate, file.channels, file.subtype
            samples = file.read(min(file.frames, len(packed)), dtype="int16")

        # The library reads fewer samples of a cut off file than its header declares.
        count = _COUNT.search(packed[:1024]) if packed.startswith(SPHERE) else None
        declared = int(count[1]) if count else len(samples)

    # Reject other formats, and truncated or too short files
    if form != (RATE, 1, "PCM_16") or not WINDOW <= declared <= len(samples):
        raise ActlabError(
            f"{path}: expected an uncompressed recording of one channel with 16 bits at 16 kHz "
            f"and at least {WINDOW} audio samples, got another file. {REMEDY}, or decompress the "
            "corpus with 'sph2pipe -p'."
        )
    return samples[:declared]


def read_phones(path: Path, samples: int) -> list[Phone]:
    """Return the phones of a ``.phn`` file for a recording of S audio samples.

    Its lines are ``begin end label``, in audio samples, end excluded.

    Raises:
        ActlabError: if the file is malformed or cut off.
    """
    # Read the phones, each from the end of the one before it.
    phones: list[Phone] = []
    last_end = 0
    text = contents(path).decode("ascii", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        begin, end, label = _parsed(line)

        # Up to half a window after the last audio sample, no frame has its centre.
        if (
            label not in CLASS_OF
            or not last_end <= begin <= end <= samples + WINDOW // 2
        ):
            raise ActlabError(
                f"{path}, line {number}: expected 'begin end phone', such as '0 2120 h#', from "
                f"{last_end} to {samples} audio samples, got {line[:40]!r}. {REMEDY}, together "
                "with the recording."
            )
        phones.append((begin, end, label))
        last_end = end
    if not phones or last_end < samples - _MOST_UNLABELLED:
        raise ActlabError(
            f"{path} is cut off: its phones end at audio sample {last_end} of {samples}. {REMEDY}."
        )
    return phones


def _parsed(line: str) -> Phone:
    """Return the phone of a line, with the empty label for a malformed line."""
    match = _PHONE.fullmatch(line)
    if match is None:
        return 0, 0, ""
    return int(match[1]), int(match[2]), match[3]
