"""Lines of text files, plain or gzipped, in bounded memory; what cannot be read is named with its line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from actlab.datamodules.images import words
from actlab.errors import ActlabError
from actlab.storage.files import regular

LONGEST = 2**20  # bytes of a line; more is no text
_GZIP, _BYTE_ORDER_MARK = b"\x1f\x8b", b"\xef\xbb\xbf"


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Each line of a file with its number, from 1, without its end (``\n`` or ``\r\n``).

    Lines are bytes, as what splits or strips text also takes spaces that belong to words. One line is in memory
    at a time. Whether the file is gzipped is read off its first bytes.

    Raises:
        ActlabError: for what is no file, is damaged, or has lines of more than `LONGEST` bytes.
    """
    if not path.is_file():
        found = "not there" if not path.exists() else "a folder" if path.is_dir() else "not a regular file"
        raise ActlabError(f"{path} is {found}; give a text file")
    number = 0
    try:
        with regular(path).open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            stream = io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file
            while line := stream.readline(LONGEST):
                number += 1
                if len(line) == LONGEST:
                    raise ActlabError(f"{path}, line {number} has more than {LONGEST} bytes; give a text file")
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
    except (OSError, EOFError, zlib.error) as error:
        raise ActlabError(
            f"{path} is damaged or cannot be read, after line {number} ({words(error)}); fetch it anew"
        ) from error


def decoded(text: bytes, path: Path, number: int) -> str:
    """The text of a line, or of a part of it.

    Raises:
        ActlabError: when it is not UTF-8.
    """
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ActlabError(f"{path}, line {number}: not UTF-8 ({words(error)}); give a UTF-8 file") from error
