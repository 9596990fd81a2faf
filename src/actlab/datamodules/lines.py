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
    r"""Yield each line of a UTF-8 file with its number, from 1, without its end (``\n`` or ``\r\n``)."""
    number = 0
    try:
        with regular(path).open("rb") as file:
            stream = gzip.open(file) if file.peek(2)[:2] == b"\x1f\x8b" else file  # noqa: SIM115  (closed above)
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ActlabError(
            f"{path}, line {number}: not UTF-8 ({one_line(error)}); give a UTF-8 file"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ActlabError(
            f"{path} is damaged or cannot be read after line {number} ({one_line(error)}); fetch it again"
        ) from error
