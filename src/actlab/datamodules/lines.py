"""Read the lines of plain or gzipped text files in bounded memory; errors name the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

LONGEST = 2**20  # bytes; a file with a longer line is not text
_GZIP, _BYTE_ORDER_MARK = b"\x1f\x8b", b"\xef\xbb\xbf"


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Yield each line of a file with its number, counted from 1, without its end (``\n`` or ``\r\n``).

    Lines are bytes, because splitting or stripping str also removes Unicode spaces that belong to words.

    Raises:
        ActlabError: if the path is not a file, the file is damaged, or a line has `LONGEST` bytes or more.
    """
    if not path.is_file():
        found = "missing" if not path.exists() else "a folder" if path.is_dir() else "not a regular file"
        raise ActlabError(f"{path} is {found}; give a text file")
    number = 0
    try:
        with regular(path).open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            stream = gzip.open(file) if packed else file  # noqa: SIM115  (closed with the file)
            while line := stream.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise ActlabError(f"{path}, line {number} has more than {LONGEST} bytes; give a text file")
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
    except (OSError, EOFError, zlib.error) as error:
        raise ActlabError(
            f"{path} is damaged or cannot be read after line {number} ({one_line(error)}); fetch it again"
        ) from error


def decoded(text: bytes, path: Path, number: int) -> str:
    """Decode the UTF-8 text of a line or of a part of it.

    Args:
        text: to decode.
        path: of the file, for the message.
        number: of the line, for the message.

    Raises:
        ActlabError: if the text is not UTF-8.
    """
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ActlabError(f"{path}, line {number}: not UTF-8 ({one_line(error)}); give a UTF-8 file") from error
