"""Which sentences TIMIT has, in which part each belongs, and what a copy of it lacks.

Two layouts, file and folder names in upper or lower case:

- the corpus (LDC93S1): ``{train,test}/dr{1…8}/SPEAKER/SENTENCE.{wav,phn}``. Training is ``train``; test is the
  core test set of 24 speakers; validation is the rest of ``test`` (GELU §3.4);
- NLTK's sample of 16 speakers: ``dr{1…8}-SPEAKER/SENTENCE.{wav,phn}``, without parts and without core speakers.
  Of its speakers in order of their folders' names every fifth from the third on is validation, every fifth from
  the fifth on is test, three of each; the other ten are training. No speaker and no text is in two parts.

The two dialect sentences that every speaker reads (``sa1``, ``sa2``) are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from actlab.errors import ActlabError

PARTS = ("train", "val", "test")
WHOLE = {"train": 3696, "val": 1152, "test": 192}  # sentences
SENTENCES_OF_A_SPEAKER = 8  # five sx, three si
# Speakers of each dialect region: the corpus' readme.doc, table 1, and testset.doc, table 2.
SPEAKERS = {
    "train": (38, 76, 76, 68, 70, 35, 77, 22),
    "test": (11, 26, 26, 32, 28, 11, 23, 11),
}
# testset.doc, table 1, a region a line
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
        folder: that holds its files.
        wav: its recording, None where there is none.
        phn: its phones, None where there are none.
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
        """What it is, whatever the case of its folders."""
        return f"{self.part}/{self.region}/{self.speaker}/{self.name}"

    @property
    def files(self) -> tuple[Path, Path]:
        """Recording and phones.

        Raises:
            ActlabError: where one is missing.
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
        folder: as it was given.
        sentences: by part, region, speaker and name.
        has_parts: whether it is in the layout of the whole corpus.
    """

    folder: Path
    sentences: list[Sentence]
    has_parts: bool

    def part(self, name: str) -> list[Sentence]:
        """The sentences of a part."""
        return [sentence for sentence in self.sentences if sentence.part == name]


def find(folder: Path) -> Corpus:
    """The sentences of a corpus, in an order that does not depend on the case of its names.

    Args:
        folder: that holds ``train`` and ``test``, or the speakers' folders, or one folder that does.

    Raises:
        ActlabError: for a folder of something else, an empty one, or one without sentences.
    """
    here = children(folder)
    for top in (here, *(children(inner) for _, inner in sorted(here.items()) if inner.is_dir())):
        has_parts = "train" in top and "test" in top
        sentences = list(_in_parts(top) if has_parts else _in_speakers(top))
        if sentences:
            by_part = sorted(sentences, key=lambda s: (PARTS.index(s.part), s.key))
            return Corpus(folder, by_part, has_parts)
    found = ", ".join(sorted(here)[:5]) or "nothing"
    raise ActlabError(f"{folder} is no copy of TIMIT: it holds {found}; {EXPECTED}")


def children(folder: Path) -> dict[str, Path]:
    """What a folder holds, by lower-case name.

    Raises:
        ActlabError: when it cannot be read, or two names differ only in case.
    """
    found: dict[str, Path] = {}
    try:
        for path in sorted(folder.iterdir()):
            if other := found.get(path.name.lower()):
                raise ActlabError(f"{folder} holds both {other.name} and {path.name}; remove one of them")
            found[path.name.lower()] = path
    except OSError as error:
        raise ActlabError(f"{folder} cannot be read ({error.strerror or error})") from error
    return found


def _matching(found: dict[str, Path], pattern: re.Pattern[str]) -> Iterator[tuple[str, dict[str, Path]]]:
    """Name and children of each folder that a pattern matches."""
    for name, path in found.items():
        if pattern.fullmatch(name) and path.is_dir():
            yield name, children(path)


def _in_parts(top: dict[str, Path]) -> Iterator[Sentence]:
    """The sentences of the whole corpus' layout."""
    for split in ("train", "test"):
        for region, speakers in _matching(children(top[split]) if top[split].is_dir() else {}, REGION):
            for speaker, files in _matching(speakers, SPEAKER):
                part = split if split == "train" or speaker in CORE else "val"
                yield from _of_speaker(part, region, speaker, speakers[speaker], files)


def _in_speakers(top: dict[str, Path]) -> Iterator[Sentence]:
    """The sentences of NLTK's layout, in parts by a rule of ours; see the module."""
    for number, (name, files) in enumerate(sorted(_matching(top, REGION_AND_SPEAKER), key=lambda s: s[0])):
        part = {2: "val", 4: "test"}.get(number % 5, "train")
        region, speaker = name.split("-")
        yield from _of_speaker(part, region, speaker, top[name], files)


def _of_speaker(
    part: str, region: str, speaker: str, folder: Path, files: dict[str, Path]
) -> Iterator[Sentence]:
    """The sentences of a speaker, without the dialect sentences."""
    known = [match for name in files if (match := SENTENCE.fullmatch(name)) and not name.startswith("sa")]
    for name in sorted({match[1] for match in known}):
        both = files.get(f"{name}.wav"), files.get(f"{name}.phn")
        yield Sentence(part, region, speaker, name, folder, *both)


def gaps(corpus: Corpus) -> list[str]:
    """What a copy in the layout of the whole corpus lacks of it, or has too much, one line each."""
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
    """Check that a copy in the layout of the whole corpus is whole.

    Raises:
        ActlabError: naming what is missing.
    """
    if corpus.has_parts and (found := gaps(corpus)):
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise ActlabError(
            f"{corpus.folder} is not the whole of TIMIT ({'; '.join(found[:3])}{more}); complete it, or set "
            "data.partial to true to use what there is"
        )


def refuse_empty(corpus: Corpus) -> None:
    """Check that every part has sentences.

    Raises:
        ActlabError: naming a part that has none.
    """
    for part in PARTS:
        if not corpus.part(part):
            raise ActlabError(
                f"{corpus.folder} has no sentence for {part}; training speakers, core test speakers and others "
                f"in the test folder are needed: {EXPECTED}"
            )
