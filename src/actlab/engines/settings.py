"""How the processes of a study compute: decided at its first start, kept in ``engine.json`` by every later one.

Masks compiled or not, the route of products and the number of threads may change the last digits of a run, and
so a run that is resumed goes on under those that it was begun with.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from typing_extensions import TypedDict

from actlab.errors import ActlabError
from actlab.experiments import without_denormals
from actlab.random import streams
from actlab.runtime import matmul
from actlab.storage.files import read_json, write_sealed

FILE = "engine.json"
LONG = 20_000  # updates of all runs, from which processes and compiled masks pay
_REMEDY = "delete it; a study that has begun then goes on as a new one decides"


Threads = Annotated[int, Field(ge=0, le=10_000)]


class _Decided(TypedDict, total=False):
    """What an earlier start has decided: `Settings`, as ``engine.json`` holds them."""

    jobs: Annotated[int, Field(ge=1, le=10_000)]
    threads: Threads
    compiled: bool
    products: str


@dataclass(frozen=True)
class Settings:
    """How the processes of a study compute.

    Args:
        jobs: number of processes that train; 1 is this one.
        threads: of torch in each of them; 0 where their number follows from the work.
        compiled: whether the functions that draw masks are compiled.
        products: the route of float32 products on the CPU; see `actlab.runtime.matmul`.
    """

    jobs: int = 1
    threads: int = 0
    compiled: bool = False
    products: str = matmul.DEFAULT

    def apply(self) -> str | None:
        """Compute so in this process; why masks are not compiled, where they should be."""
        matmul.use(self.products)
        return streams.compile_masks() if self.compiled else None


def decide(root: Path, updates: int, jobs: int | None, single_device: bool) -> tuple[Settings, list[str]]:
    """The settings of a study: those of its first start, or new ones; and what there is to say about them.

    Args:
        root: the study's folder.
        updates: of all its runs.
        jobs: number of processes that the user asks for; by default one a core in a long study.
        single_device: whether each run has one device; else runs are trained one after the other.

    Raises:
        ActlabError: for a number of processes below 1, or when ``engine.json`` is damaged.
    """
    if jobs is not None and jobs < 1:
        raise ActlabError(f"--jobs {jobs}: give a whole number from 1")
    path = root / FILE
    known: _Decided = read_json(path, _Decided, _REMEDY) if path.exists() else {}
    long = updates >= LONG
    number = (jobs or known.get("jobs") or (seats() if long else 1)) if single_device else 1
    wanted = Settings(
        jobs=number,
        threads=known.get("threads", int(number > 1)),
        compiled=known.get("compiled", long),
        products=known.get("products") or (matmul.choose() if long else matmul.DEFAULT),
    )
    said = []
    if reason := wanted.apply():
        if known:
            reason += "; when the study was started they were compiled, so last digits may differ from then on"
        said.append(reason)
        wanted = replace(wanted, compiled=False)
    if not known:
        write_sealed(path, asdict(wanted))
    return wanted, said


def seats() -> int:
    """How many processes there is room for: the accelerators, or the threads that torch would use."""
    return torch.accelerator.device_count() or torch.get_num_threads()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's announcements of every single run off the screen; round denormal numbers to 0."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), without_denormals():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
