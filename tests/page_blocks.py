"""The fenced blocks of a page: programs, commands, and files that its reader writes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """A fenced block: its language, its text, and what its first line names, else empty.

    That is the file to write it to, or the package, no dependency of actlab, that it requires.
    """

    language: str
    text: str
    file: str
    package: str


def blocks_of(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    for language, inside in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        suffix = {"python": "py", "yaml": "yaml"}.get(language, "-")
        file = re.match(rf"# ([\w-]+\.{suffix})\n", inside)
        package = re.match(r"# requires (\w+)\n", inside)
        yield Block(language, inside, file[1] if file else "", package[1] if package else "")
