"""The fenced blocks of a page: programs, commands, and files that its reader writes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Languages of what may be run; ``sh`` takes minutes, or needs data or an account
RUN = (
    "python",
    "bash",
    "sh",
)


class Block(NamedTuple):
    """A fenced block: its language, its text, and what its first line names, else empty.

    That is the file to write it to, or the package, no dependency of actlab, that it requires.
    ``section`` counts the headings above the block.
    """

    language: str
    text: str
    file: str
    package: str
    section: int


def blocks_of(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    for block in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        language, inside = block.groups()
        section = len(re.findall("^##+ ", text[: block.start()], re.M))
        suffix = {"python": "py", "yaml": "yaml"}.get(language, "-")
        file = re.match(rf"# ([\w-]+\.{suffix})\n", inside)
        package = re.match(r"# requires (\w+)\n", inside)
        yield Block(
            language, inside, file[1] if file else "", package[1] if package else "", section
        )


def outputs_of(document: Path) -> list[tuple[Block | None, Block]]:
    """Each block ``text`` of a document, with the program or commands before it that print it."""
    blocks = [*blocks_of(document)]
    pairs = zip([None, *blocks], blocks, strict=False)
    return [
        (
            before
            if before and before.language in RUN and before.section == block.section
            else None,
            block,
        )
        for before, block in pairs
        if block.language == "text"
    ]
