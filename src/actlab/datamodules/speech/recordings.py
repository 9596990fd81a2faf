"""Read the two files of a sentence: the recording (NIST SPHERE or RIFF) and its phones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actlab.datamodules.speech.features import RATE, WINDOW, Phone
from actlab.datamodules.speech.phones import CLASS_OF, SILENCE
from actlab.errors import ActlabError, one_line, reason
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
    try:
        count = _COUNT.search(packed[:1024]) if packed.startswith(SPHERE) else None
        declared = int(count[1]) if count else None
        # Open by path: for bytes in memory, the library uses callbacks that print a traceback on damaged data.
        with soundfile.SoundFile(regular(path)) as file:
            if (file.samplerate, file.channels, file.subtype) != (RATE, 1, "PCM_16"):
                raise ActlabError(
                    f"{path} has {file.samplerate} audio samples per second, number of channels "
                    f"{file.channels}, {file.subtype}; TIMIT has {RATE}, 1, PCM_16: {REMEDY}"
                )
            samples: NDArray[np.int16] = file.read(min(file.frames, len(packed)), dtype="int16")
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        raise ActlabError(
            f"{path} is damaged, compressed or not a recording ({one_line(error)}); {REMEDY}, or "
            "decompress the corpus with 'sph2pipe -p'"
        ) from error
    if declared is not None and not 0 <= declared <= len(samples):
        raise ActlabError(
            f"{path} is cut off: its header says {declared} audio samples, it holds {len(samples)}; {REMEDY}"
        )
    samples = samples[:declared]
    if len(samples) < WINDOW:
        raise ActlabError(f"{path} has {len(samples)} audio samples, fewer than a window of {WINDOW}; {REMEDY}")
    return samples


def write_recording(path: Path, samples: NDArray[np.int16]) -> None:
    """Write a NIST SPHERE file: 16-bit PCM, mono, 16 kHz."""
    import soundfile

    soundfile.write(path, samples, RATE, "PCM_16", "LITTLE", "NIST")


def read_phones(path: Path, samples: int) -> list[Phone]:
    """Return the phones of a ``.phn`` file, from lines ``begin end label`` in audio samples, end excluded."""
    try:
        text = contents(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise ActlabError(f"{path} is not ASCII text ({error.reason}); {REMEDY}") from error
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
    _, end, label = phones[-1] if phones else (0, 0, "none")
    is_cut = end < samples - _MOST_UNLABELLED or (label != SILENCE and not text.endswith("\n"))
    if not phones or is_cut:
        raise ActlabError(
            f"{path} is cut off: its last phone is {label!r} up to audio sample {end:,} of {samples:,}; "
            + REMEDY
        )
    return phones
