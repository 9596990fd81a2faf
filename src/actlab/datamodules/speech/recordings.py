"""Read the two files of a sentence: the recording (NIST SPHERE or RIFF) and its phones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actlab.datamodules.speech.features import RATE, WINDOW, Phone
from actlab.datamodules.speech.phones import CLASS_OF, SILENCE
from actlab.errors import ActlabError, one_line, reason, unknown
from actlab.storage.files import regular

SPHERE = b"NIST_1A\n"
REMEDY = "copy it from the corpus again"
_MOST_UNLABELLED = RATE // 2  # upper limit of audio samples after the last phone


def contents(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        ActlabError: if the file cannot be read.
    """
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise ActlabError(f"{path} cannot be read ({reason(error)}); {REMEDY}") from error


def read_recording(path: Path) -> NDArray[np.int16]:
    """Return the audio samples of a recording, int16 ``(S,)``.

    Args:
        path: of a NIST SPHERE or RIFF file with one channel of 16-bit PCM at 16 kHz.

    Raises:
        ActlabError: if the file has another format, is damaged or is shorter than one window.
    """
    import soundfile

    packed = contents(path)
    declared = _declared_samples(path, packed) if packed.startswith(SPHERE) else None
    try:
        # Open by path: for bytes in memory, the library uses callbacks that print a traceback on damaged data.
        with soundfile.SoundFile(regular(path)) as file:
            _check_format(path, file.format, file.subtype, file.channels, file.samplerate)
            samples: NDArray[np.int16] = file.read(min(file.frames, len(packed)), dtype="int16")
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        raise ActlabError(f"{path} is damaged or not a recording ({one_line(error)}); {REMEDY}") from error
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


def _check_format(path: Path, kind: str, subtype: str, channels: int, rate: int) -> None:
    if rate != RATE:
        raise ActlabError(f"{path} has {rate} audio samples per second; TIMIT has {RATE}: {REMEDY}")
    if channels != 1 or subtype != "PCM_16":
        raise ActlabError(
            f"{path} holds {channels} channel{'s' * (channels != 1)} of {subtype} in {kind}; TIMIT has one "
            f"channel of PCM_16: {REMEDY}"
        )


def _declared_samples(path: Path, packed: bytes) -> int | None:
    """Return the number of audio samples that a SPHERE header declares, or None if the header has no count.

    Raises:
        ActlabError: if the audio is compressed, or the declared number is malformed.
    """
    fields: dict[str, str] = {}
    for line in packed[:1024].decode("latin-1").partition("end_head")[0].splitlines():
        name, _, typed = line.partition(" ")
        fields[name] = typed.partition(" ")[2].strip()
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise ActlabError(
            f"{path} is compressed ({coding!r}), which actlab cannot read; decompress the corpus with NIST's "
            "'w_decode -o pcm' or with 'sph2pipe -p'"
        )
    count = fields.get("sample_count", "")
    if count and not (count.isascii() and count.isdigit()):
        raise ActlabError(f"{path} is damaged: its header says {count[:20]!r} audio samples; {REMEDY}")
    return int(count) if count else None


def read_phones(path: Path, samples: int) -> list[Phone]:
    """Return the phones of a sentence in order, from lines ``begin end label``; the end is excluded.

    Args:
        path: of a ``.phn`` file; times are in audio samples.
        samples: number of audio samples S of the recording. The last phone may end up to half a window later,
            where no frame has its centre.

    Raises:
        ActlabError: for a malformed line, an unknown label, times that decrease or lie beyond the audio, or a
            file that is truncated, empty or not ASCII.
    """
    try:
        text = contents(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise ActlabError(f"{path} is not ASCII text ({error.reason}); {REMEDY}") from error
    phones: list[Phone] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            phone = _parse_phone(f"{path}, line {number}", line)
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


def _parse_phone(where: str, line: str) -> Phone:
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
            f"{where}: the phone from {begin} to {end} goes back in time (the previous phone ends at "
            f"{before}); {REMEDY}"
        )
    if end > samples + WINDOW // 2:
        raise ActlabError(
            f"{where}: the phone ends at {end}, beyond the recording's {samples} audio samples; {REMEDY}, "
            "together with the recording"
        )
