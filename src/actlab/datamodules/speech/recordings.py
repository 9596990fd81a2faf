"""Read the two files of a sentence: the recording (NIST SPHERE or RIFF) and its phones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actlab.datamodules.speech.features import RATE, WINDOW, Phone
from actlab.datamodules.speech.phones import CLASS_OF
from actlab.errors import ActlabError
from actlab.errors.messages import reason
from actlab.storage.files import regular

SPHERE = b"NIST_1A\n"
REMEDY = "copy it from the corpus again"
_COUNT = re.compile(rb"^sample_count -i (\S+)", re.MULTILINE)  # in a SPHERE header
_PHONE = re.compile(r"\s*([0-9]{1,11})\s+([0-9]{1,11})\s+(\S+)\s*")
_MOST_UNLABELLED = RATE // 2  # upper limit of audio samples after the last phone


def contents(path: Path) -> bytes:
    """Return the bytes of a file, or raise an ActlabError."""
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise ActlabError(f"{path} cannot be read ({reason(error)}); {REMEDY}") from error


def read_recording(path: Path) -> NDArray[np.int16]:
    """Return the audio samples, int16 ``(S,)``, of a NIST SPHERE or RIFF file: 16-bit PCM, mono, 16 kHz."""
    import soundfile

    packed = contents(path)
    count = _COUNT.search(packed[:1024]) if packed.startswith(SPHERE) else None
    form, samples = None, np.empty(0, np.int16)
    try:
        # Open by path: for bytes in memory, the library uses callbacks that print a traceback on
        # damaged data.
        with soundfile.SoundFile(regular(path)) as file:
            form = file.samplerate, file.channels, file.subtype
            samples = file.read(min(file.frames, len(packed)), dtype="int16")
        declared = int(count[1]) if count else len(samples)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        declared = 0
    if form != (RATE, 1, "PCM_16") or not WINDOW <= declared <= len(samples):
        raise ActlabError(
            f"{path} is damaged, compressed or not a recording of one channel with 16 bits at 16 kHz, at least "
            f"{WINDOW} audio samples; {REMEDY}, or decompress the corpus with 'sph2pipe -p'"
        )
    return samples[:declared]


def read_phones(path: Path, samples: int) -> list[Phone]:
    """Return the phones of a ``.phn`` file, from lines ``begin end label`` in audio samples, end excluded."""
    text = contents(path).decode("ascii", "replace")
    phones: list[Phone] = []
    before = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _PHONE.fullmatch(line)
        begin, end, label = (int(match[1]), int(match[2]), match[3]) if match else (0, -1, "")
        # Up to half a window after the last audio sample, no frame has its centre.
        if label not in CLASS_OF or not before <= begin <= end <= samples + WINDOW // 2:
            raise ActlabError(
                f"{path}, line {number}: expected 'begin end phone', such as '0 2120 h#', from {before} to "
                f"{samples} audio samples, not {line[:40]!r}; {REMEDY}, together with the recording"
            )
        phones.append((begin, before := end, label))
    if not phones or before < samples - _MOST_UNLABELLED:
        raise ActlabError(
            f"{path} is cut off: its phones end at audio sample {before} of {samples}; {REMEDY}"
        )
    return phones
