"""Tiny text files of tweets, clusters and vectors, and what stands for the network."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from actlab.errors import ActlabError

TRAIN = "I\tO\nlike\tV\n@Bob\t@\n\nlike\tP\nhttp://www.T.co/x\tU\n\n"
DEV, TEST = "Bob\t^\nlike\tV\n\n", "zzz\tN\n\n"
DAILY = "I\tO\nlike\tV\n"
CLUSTERS = "00\ti\t40\n0111111111111111\tlike\t41\n10\t<@MENTION>\t50\n11\t<URL-T.co>\t60\n"
VECTORS = "</s> 9 8 7\ni 1 2 3\nlike 0.5 -1e-1 +.25\n<@MENTION> 0 0 1\nother 4 4 4\nUUUNKKK 5 5 5\n"
FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def file_of(tmp_path: Path, content: str | bytes, name: str = "file.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(read: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ActlabError) as caught:
        read(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Copies:
    """Stands for the network: what is at a URL lies in a folder; counts what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def __call__(self, url: str, target: str, store: Any) -> None:
        self.asked.append(url.rpartition("/")[2])
        shutil.copyfile(self.folder / self.asked[-1], target)
