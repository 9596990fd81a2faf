"""Read the lines of plain or gzipped text files; errors name the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.files import regular


def lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file with their numbers, from 1, without ``\n`` or ``\r\n``.

    Raises:
        ActlabError: if the file is damaged or not UTF-8.
    """
    number = 0
    try:
        with regular(path).open("rb") as file:
            # Compressed files are recognised by their first bytes.
            is_packed = file.peek(2)[:2] == b"\x1f\x8b"
            stream = gzip.open(file) if is_packed else file  # noqa: SIM115  (closed above)
            for number, line in enumerate(stream, 1):
                # A byte order mark may begin the file.
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                text = line.decode(encoding).removesuffix("\n")
                yield number, text.removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ActlabError(
            f"{path}, line {number}: expected UTF-8, got other bytes ({one_line(error)}). Convert "
            "the file to UTF-8."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ActlabError(
            f"{path} is damaged or cannot be read after line {number} ({one_line(error)}). Fetch "
            "it again."
        ) from error
