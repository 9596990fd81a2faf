"""Find the sentences of a TIMIT copy, assign each to a split (here: part), and report what the copy lacks.

Two layouts are supported, with file and folder names in upper or lower case:

- the corpus (LDC93S1): ``{train,test}/dr{1…8}/SPEAKER/SENTENCE.{wav,phn}``. The training part is ``train``, the
  test part is the core test set of 24 speakers, and the validation part is the rest of ``test`` (GELU §3.4);
- NLTK's sample of 16 speakers: ``dr{1…8}-SPEAKER/SENTENCE.{wav,phn}``, without parts and without core speakers.
  With the speakers in order of their folder names, every fifth from the third on is in the validation part and
  every fifth from the fifth on is in the test part, three speakers each. The other ten are in the training
  part. No speaker and no text is in two parts.

The two dialect sentences that every speaker reads (``sa1``, ``sa2``) are excluded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from actlab.errors import ActlabError, reason

PARTS = ("train", "val", "test")
WHOLE = {"train": 3696, "val": 1152, "test": 192}  # number of sentences in each part
SENTENCES_OF_A_SPEAKER = 8  # five sx, three si
# Speakers of each dialect region: readme.doc, table 1, and testset.doc, table 2, of the corpus.
SPEAKERS = {
    "train": (38, 76, 76, 68, 70, 35, 77, 22),
    "test": (11, 26, 26, 32, 28, 11, 23, 11),
}
# testset.doc, table 1, one region per line
_CORE = """
mdab0 mwbt0 felc0
mtas1 mwew0 fpas0
mjmp0 mlnt0 fpkt0
mlll0 mtls0 fjlm0
mbpm0 mklt0 fnlp0
mcmj0 mjdh0 fmgd0
mgrt0 mnjm0 fdhc0
mjln0 mpam0 fmld0
"""
CORE = tuple(_CORE.split())
REGION, SPEAKER = re.compile("dr[1-8]"), re.compile("[fm][a-z]{3}[0-9]")
REGION_AND_SPEAKER = re.compile("(dr[1-8])-([fm][a-z]{3}[0-9])")
SENTENCE = re.compile("(s[aix][0-9]{1,4})[.](wav|phn)")
EXPECTED = (
    "expected TIMIT's folders train/dr1/SPEAKER/… and test/dr1/SPEAKER/… (LDC93S1) or those of NLTK's sample, "
    "dr1-SPEAKER/…"
)


class Sentence(NamedTuple):
    """A sentence of a corpus.

    Args:
        part: ``train``, ``val`` or ``test``.
        region: ``dr1`` … ``dr8``.
        speaker: sex and name, such as ``fcjf0``.
        name: such as ``sx37``.
        folder: holds the files of the sentence.
        wav: path of the recording, or None if missing.
        phn: path of the phones, or None if missing.
    """

    part: str
    region: str
    speaker: str
    name: str
    folder: Path
    wav: Path | None
    phn: Path | None

    @property
    def key(self) -> str:
        """An identifier that does not depend on the case of folder names."""
        return f"{self.part}/{self.region}/{self.speaker}/{self.name}"

    @property
    def files(self) -> tuple[Path, Path]:
        """The paths of the recording and of the phones.

        Raises:
            ActlabError: if a file is missing.
        """
        if self.wav is None or self.phn is None:
            lacking = "wav" if self.wav is None else "phn"
            raise ActlabError(
                f"sentence {self.folder / self.name} has no .{lacking} file; copy it from the corpus, or "
                "remove the other files of the sentence"
            )
        return self.wav, self.phn


class Corpus(NamedTuple):
    """The sentences of a folder.

    Args:
        folder: as given by the user.
        sentences: sorted by part, region, speaker and name.
        has_parts: whether the folder has the layout of LDC93S1.
    """

    folder: Path
    sentences: list[Sentence]
    has_parts: bool

    def part(self, name: str) -> list[Sentence]:
        """Return the sentences of one part."""
        return [sentence for sentence in self.sentences if sentence.part == name]


def find(folder: Path) -> Corpus:
    """Return the sentences of a corpus, in an order that does not depend on the case of names.

    Args:
        folder: holds ``train`` and ``test``, or the speakers' folders, or a folder with one of these layouts.

    Raises:
        ActlabError: if the folder is not a copy of TIMIT, is empty or has no sentences.
    """
    here = children(folder)
    for top in (here, *(children(inner) for _, inner in sorted(here.items()) if inner.is_dir())):
        has_parts = "train" in top and "test" in top
        sentences = list(_sentences_in_corpus(top) if has_parts else _sentences_in_sample(top))
        if sentences:
            by_part = sorted(sentences, key=lambda s: (PARTS.index(s.part), s.key))
            return Corpus(folder, by_part, has_parts)
    found = ", ".join(sorted(here)[:5]) or "nothing"
    raise ActlabError(f"{folder} is not a copy of TIMIT: it holds {found}; {EXPECTED}")


def children(folder: Path) -> dict[str, Path]:
    """Return the entries of a folder by lower-case name.

    Raises:
        ActlabError: if the folder cannot be read, or two names differ only in case.
    """
    found: dict[str, Path] = {}
    try:
        for path in sorted(folder.iterdir()):
            if other := found.get(path.name.lower()):
                raise ActlabError(f"{folder} holds both {other.name} and {path.name}; remove one of them")
            found[path.name.lower()] = path
    except OSError as error:
        raise ActlabError(f"{folder} cannot be read ({reason(error)})") from error
    return found


def _matching_folders(
    found: dict[str, Path], pattern: re.Pattern[str]
) -> Iterator[tuple[str, dict[str, Path]]]:
    """Yield the name and the children of each folder that matches a pattern."""
    for name, path in found.items():
        if pattern.fullmatch(name) and path.is_dir():
            yield name, children(path)


def _sentences_in_corpus(top: dict[str, Path]) -> Iterator[Sentence]:
    for split in ("train", "test"):
        for region, speakers in _matching_folders(children(top[split]) if top[split].is_dir() else {}, REGION):
            for speaker, files in _matching_folders(speakers, SPEAKER):
                part = split if split == "train" or speaker in CORE else "val"
                yield from _sentences_of_speaker(part, region, speaker, speakers[speaker], files)


def _sentences_in_sample(top: dict[str, Path]) -> Iterator[Sentence]:
    """Yield the sentences of NLTK's layout, with the parts that the module docstring defines."""
    folders = sorted(_matching_folders(top, REGION_AND_SPEAKER), key=lambda s: s[0])
    for number, (name, files) in enumerate(folders):
        part = {2: "val", 4: "test"}.get(number % 5, "train")
        region, speaker = name.split("-")
        yield from _sentences_of_speaker(part, region, speaker, top[name], files)


def _sentences_of_speaker(
    part: str, region: str, speaker: str, folder: Path, files: dict[str, Path]
) -> Iterator[Sentence]:
    """Yield the sentences of a speaker, without the dialect sentences."""
    known = [match for name in files if (match := SENTENCE.fullmatch(name)) and not name.startswith("sa")]
    for name in sorted({match[1] for match in known}):
        both = files.get(f"{name}.wav"), files.get(f"{name}.phn")
        yield Sentence(part, region, speaker, name, folder, *both)


def gaps(corpus: Corpus) -> list[str]:
    """Return one line for each difference between a copy in the layout of LDC93S1 and the complete corpus."""
    found = []
    for part in PARTS:
        if (count := len(corpus.part(part))) != WHOLE[part]:
            found.append(f"{part}: {count} of {WHOLE[part]} sentences")
    speakers = Counter((s.part, s.region, s.speaker) for s in corpus.sentences)
    for split, of_regions in SPEAKERS.items():
        inside = [s for s in speakers if (s[0] == "train") == (split == "train")]
        for number, expected in enumerate(of_regions, 1):
            count = sum(region == f"dr{number}" for _, region, _ in inside)
            if count != expected:
                found.append(f"{split}/dr{number}: {count} of {expected} speakers")
    present = {speaker for part, _, speaker in speakers if part == "test"}
    found += [f"core test speaker {name} is missing" for name in CORE if name not in present]
    found += [
        f"{part}/{region}/{speaker}: {count} of {SENTENCES_OF_A_SPEAKER} sentences"
        for (part, region, speaker), count in speakers.items()
        if count != SENTENCES_OF_A_SPEAKER
    ]
    return found


def refuse_gaps(corpus: Corpus) -> None:
    """Check that a copy in the layout of LDC93S1 is complete; accept every copy in NLTK's layout.

    Raises:
        ActlabError: if the copy is incomplete; the message lists the first three differences.
    """
    if corpus.has_parts and (found := gaps(corpus)):
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ActlabError(
            f"{corpus.folder} is not the whole of TIMIT ({'; '.join(found[:3])}{more}); complete the folder, "
            "or set data.partial to true to use an incomplete copy"
        )


def refuse_empty(corpus: Corpus) -> None:
    """Check that every part has sentences.

    Raises:
        ActlabError: if a part has no sentences.
    """
    for part in PARTS:
        if not corpus.part(part):
            raise ActlabError(
                f"{corpus.folder} has no sentence for {part}; it needs training speakers, core test speakers "
                f"and other speakers in the test folder: {EXPECTED}"
            )
