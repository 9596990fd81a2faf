"""The two files of a sentence: the recording (NIST SPHERE or RIFF) and its phones; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actlab.datamodules.speech.features import RATE, WINDOW, Phone
from actlab.datamodules.speech.phones import CLASS_OF, SILENCE
from actlab.errors import ActlabError, unknown
from actlab.storage.files import regular

SPHERE = b"NIST_1A\n"
REMEDY = "copy it from the corpus anew"
_MOST_UNLABELLED = RATE // 2  # audio samples after the last phone


def contents(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        ActlabError: when it cannot be read.
    """
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise ActlabError(f"{path} cannot be read ({error.strerror or error}); {REMEDY}") from error


def read_recording(path: Path) -> NDArray[np.int16]:
    """The audio samples of a file, int16 ``(S,)``.

    Args:
        path: of a NIST SPHERE or RIFF file: one channel of 16-bit PCM at 16 kHz.

    Raises:
        ActlabError: for anything else, and for a damaged file.
    """
    import soundfile

    packed = contents(path)
    declared = _declared_samples(path, packed) if packed.startswith(SPHERE) else None
    try:
        # By its name: over bytes in memory the library calls back, and damage makes it print a traceback there.
        with soundfile.SoundFile(regular(path)) as file:
            _check_form(path, file.format, file.subtype, file.channels, file.samplerate)
            samples: NDArray[np.int16] = file.read(min(file.frames, len(packed)), dtype="int16")
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:100]
        raise ActlabError(f"{path} is damaged or no recording ({reason}); {REMEDY}") from error
    if declared is not None and len(samples) < declared:
        raise ActlabError(
            f"{path} is cut off: its header says {declared} audio samples, it holds {len(samples)}; {REMEDY}"
        )
    samples = samples[:declared]
    if len(samples) < WINDOW:
        raise ActlabError(
            f"{path} has {len(samples)} audio samples, fewer than one window of {WINDOW}; {REMEDY}"
        )
    return samples


def _check_form(path: Path, kind: str, subtype: str, channels: int, rate: int) -> None:
    if rate != RATE:
        raise ActlabError(f"{path} has {rate} audio samples a second; TIMIT has {RATE}: {REMEDY}")
    if channels != 1 or subtype != "PCM_16":
        raise ActlabError(
            f"{path} holds {channels} channel{'s' * (channels != 1)} of {subtype} in {kind}; TIMIT has one "
            f"channel of PCM_16: {REMEDY}"
        )


def _declared_samples(path: Path, packed: bytes) -> int | None:
    """The number of audio samples that a SPHERE header declares, if it does.

    Raises:
        ActlabError: for compressed audio, or a header that cannot be read.
    """
    fields: dict[str, str] = {}
    for line in packed[:1024].decode("latin-1").partition("end_head")[0].splitlines():
        name, _, typed = line.partition(" ")
        fields[name] = typed.partition(" ")[2].strip()
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise ActlabError(
            f"{path} is compressed ({coding!r}), which cannot be read; uncompress the corpus by NIST's "
            "'w_decode -o pcm', or by 'sph2pipe -p'"
        )
    count = fields.get("sample_count", "")
    if count and not (count.isascii() and count.isdigit()):
        raise ActlabError(f"{path} is damaged: its header says {count[:20]!r} audio samples; {REMEDY}")
    return int(count) if count else None


def read_phones(path: Path, samples: int) -> list[Phone]:
    """The phones of a sentence, in order: lines ``begin end label`` in audio samples, the end excluded.

    Args:
        path: of a ``.phn`` file.
        samples: S of its recording. The last phone may end up to half a window later: no frame has its centre
            there.

    Raises:
        ActlabError: for a line that is no phone, an unknown label, times that go back or lie beyond the audio.
    """
    try:
        text = contents(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise ActlabError(f"{path} is no text ({error.reason}); {REMEDY}") from error
    phones: list[Phone] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            phone = _phone(f"{path}, line {number}", line)
            _check_times(f"{path}, line {number}", phone, phones[-1][1] if phones else 0, samples)
            phones.append(phone)
    if not phones:
        raise ActlabError(f"{path} holds no phones; {REMEDY}")
    _, end, label = phones[-1]
    if end < samples - _MOST_UNLABELLED or (label != SILENCE and not text.endswith("\n")):
        raise ActlabError(
            f"{path} is cut off: its last phone is {label!r} up to audio sample {end:,} of {samples:,}; "
            + REMEDY
        )
    return phones


def _phone(where: str, line: str) -> Phone:
    match line.split():
        case [begin, end, label] if begin.isdigit() and end.isdigit() and max(len(begin), len(end)) < 12:
            if label not in CLASS_OF:
                raise ActlabError(f"{where}: {unknown('phone', label[:20], CLASS_OF, REMEDY + '.')}")
            return int(begin), int(end), label
    raise ActlabError(
        f"{where}: expected 'begin end label' in audio samples, such as '0 2120 h#', not {line[:40]!r}; "
        f"{REMEDY}"
    )


def _check_times(where: str, phone: Phone, before: int, samples: int) -> None:
    begin, end, _ = phone
    if begin < before or end < begin:
        raise ActlabError(
            f"{where}: the phone from {begin} to {end} goes back in time (the one before ends at {before}); "
            f"{REMEDY}"
        )
    if end > samples + WINDOW // 2:
        raise ActlabError(
            f"{where}: the phone ends at {end}, beyond the recording's {samples} audio samples; {REMEDY}, and "
            "the recording too"
        )
