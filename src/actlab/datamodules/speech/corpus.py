"""Find the sentences of a TIMIT copy and assign each to a split (here: part).

Two layouts are supported, with file and folder names in upper or lower case:

- the corpus (LDC93S1): ``{train,test}/dr{1…8}/SPEAKER/SENTENCE.{wav,phn}``. The training part is
  ``train``, the test part is the core test set of 24 speakers, and the validation part is the rest
  of ``test`` (GELU §3.4);
- NLTK's sample of 16 speakers: ``dr{1…8}-SPEAKER/SENTENCE.{wav,phn}``, without parts and without
  core speakers. With the speakers in order of their folder names, every fifth from the third on is
  in the validation part and every fifth from the fifth on is in the test part, three speakers each.
  The other ten are in the training part. No speaker and no text is in two parts.

The two dialect sentences that every speaker reads (``sa1``, ``sa2``) are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from actlab.errors import ActlabError

PARTS = ("train", "val", "test")
WHOLE = {"train": 3696, "val": 1152, "test": 192}  # number of sentences in each part
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
_REGION = "(?P<region>dr[1-8])"
_SPEAKER = "(?P<speaker>[fm][a-z]{3}[0-9])"
_FILE = r"/(?P<name>s[ix][0-9]{1,4})\.(?P<suffix>wav|phn)"
_TOP = "(?P<top>(?:[^/]+/)?)"  # the layout may begin one folder below the given one
# Lower-case paths of the files of each layout.
_CORPUS = re.compile(f"{_TOP}(?P<split>train|test)/{_REGION}/{_SPEAKER}{_FILE}")
_SAMPLE = re.compile(f"{_TOP}(?P<split>){_REGION}-{_SPEAKER}{_FILE}")
EXPECTED = (
    "expected TIMIT's folders train/dr1/SPEAKER/… and test/dr1/SPEAKER/… (LDC93S1), or the "
    "folders dr1-SPEAKER/… of NLTK's sample"
)


class Sentence(NamedTuple):
    """A sentence of a corpus, such as ``sx37`` of speaker ``fcjf0`` in region ``dr1``."""

    part: str  # of `PARTS`
    region: str
    speaker: str
    name: str
    wav: Path | None  # the recording, or None if missing
    phn: Path | None  # the phones, or None if missing

    @property
    def key(self) -> str:
        """An identifier that does not depend on the case of folder names."""
        return f"{self.part}/{self.region}/{self.speaker}/{self.name}"

    @property
    def files(self) -> tuple[Path, Path]:
        """The paths of the recording and of the phones; an ActlabError if one is missing."""
        if self.wav and self.phn:
            return self.wav, self.phn
        existing = self.wav or self.phn or Path(self.key)
        missing = "phn" if self.wav else "wav"
        raise ActlabError(
            f"sentence {existing.with_suffix('')} has no .{missing} file. Copy it from the "
            "corpus, or remove the other files of the sentence."
        )


class Corpus(NamedTuple):
    """The sentences of a folder."""

    folder: Path  # as given by the user
    sentences: list[Sentence]  # sorted by part, region, speaker and name
    has_parts: bool  # whether the folder has the layout of LDC93S1

    def part(self, name: str) -> list[Sentence]:
        """Return the sentences of one part."""
        return [sentence for sentence in self.sentences if sentence.part == name]


def find(folder: Path) -> Corpus:
    """Return the sentences of a corpus, in an order that does not depend on the case of names.

    Raises:
        ActlabError: if the folder has neither layout.
    """
    # List the files, from dr1-SPEAKER/FILE to TIMIT/train/dr1/SPEAKER/FILE.
    paths: list[Path] = []
    for depth in range(2, 6):
        pattern = "/".join(["*"] * depth)
        paths.extend(folder.glob(pattern))
    paths.sort()

    # Use the first layout that some files match.
    for layout in (_CORPUS, _SAMPLE):
        files = []
        for path in paths:
            name = path.relative_to(folder).as_posix()
            match = layout.fullmatch(name.lower())
            if match:
                files.append((match, path))
        if files:
            return Corpus(folder, _sentences(files), has_parts=layout is _CORPUS)
    raise ActlabError(
        f"{folder}: {EXPECTED}, got neither. Use the folder of the corpus."
    )


def _sentences(files: Sequence[tuple[re.Match[str], Path]]) -> list[Sentence]:
    """Return the sentences of the files that match a layout, sorted by part and key."""
    # Group the files by sentence. A second copy of the corpus in the folder is not
    # used.
    top = min(match["top"] for match, _ in files)
    files_of_sentence: dict[tuple[str, ...], dict[str, Path]] = {}
    for match, path in files:
        if match["top"] == top:
            key = match.group("split", "region", "speaker", "name")
            files_of_sentence.setdefault(key, {})[match["suffix"]] = path

    # In NLTK's sample, two of five speakers are for validation and test.
    speakers = sorted(
        {(region, speaker) for _, region, speaker, _ in files_of_sentence}
    )
    sample_parts = {}
    for number, region_and_speaker in enumerate(speakers):
        sample_parts[region_and_speaker] = {2: "val", 4: "test"}.get(
            number % 5, "train"
        )

    # Assign the sentences to parts.
    sentences = []
    for (split, region, speaker, name), paths in files_of_sentence.items():
        part = split or sample_parts[region, speaker]
        if split == "test" and speaker not in CORE:
            part = "val"
        sentence = Sentence(
            part, region, speaker, name, paths.get("wav"), paths.get("phn")
        )
        sentences.append(sentence)
    sentences.sort(key=lambda sentence: (PARTS.index(sentence.part), sentence.key))
    return sentences


def check_whole(corpus: Corpus, partial: bool) -> None:
    """Check that every part has sentences and that a copy of LDC93S1 is complete.

    A copy may be incomplete if ``partial``.
    """
    counts = {part: len(corpus.part(part)) for part in PARTS}
    if corpus.has_parts and not partial and counts != WHOLE:
        numbers = ", ".join(f"{part} {counts[part]} of {WHOLE[part]}" for part in PARTS)
        raise ActlabError(
            f"{corpus.folder}: expected all sentences of TIMIT, got {numbers}. Complete the "
            "folder, or set data.partial to true to use an incomplete copy."
        )
    if not all(counts.values()):
        raise ActlabError(
            f"{corpus.folder}: expected sentences of training speakers, core test speakers and "
            f"other test speakers, got {counts}. Add speakers to the folder."
        )
