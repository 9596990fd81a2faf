"""Execution settings of a study: chosen at its first start, stored in ``engine.json``, reused later.

Compiled masks, the matmul backend and the number of threads may change the last digits of results. A resumed
run therefore uses the settings of the first start.
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
from actlab.random import streams
from actlab.runtime import matmul
from actlab.storage.files import read_json, write_json
from actlab.studies.stacks import Threads

FILE = "engine.json"
LONG = 20_000  # updates of all runs; from here on several processes and compiled masks save time
_REMEDY = "delete it; the study then resumes with newly chosen settings"


class _StoredSettings(TypedDict, total=False):
    """The content of ``engine.json``: the `Settings` of an earlier start."""

    jobs: Annotated[int, Field(ge=1, le=10_000)]
    threads: Threads
    compiled: bool
    products: str


@dataclass(frozen=True)
class Settings:
    """Execution settings of a study's processes.

    Args:
        jobs: number of training processes; 1 trains in this process.
        threads: number of torch's threads in each process; 0 chooses it for each job.
        compiled: whether the functions that draw dropout masks are compiled.
        products: matmul backend for float32 on the CPU; see `actlab.runtime.matmul`.
    """

    jobs: int = 1
    threads: int = 0
    compiled: bool = False
    products: str = matmul.DEFAULT

    def apply(self) -> str | None:
        """Apply the settings to this process; return why masks cannot be compiled, or None."""
        matmul.use(self.products)
        return streams.compile_masks() if self.compiled else None

    def apply_to_worker(self) -> str | None:
        """Apply the settings, with the number of threads, to a process that only works for the study."""
        if self.threads:
            torch.set_num_threads(self.threads)
        return self.apply()


def decide(root: Path, updates: int, jobs: int | None, single_device: bool) -> tuple[Settings, list[str]]:
    """Return the settings of a study's first start, or choose and store new ones.

    Args:
        root: the study's folder.
        updates: number of updates of all runs.
        jobs: number of processes requested by the user; by default that of the first start, or in a long
            study one per accelerator or core (`seats`).
        single_device: whether each run uses a single device; otherwise runs are trained one after the other.

    Returns:
        The settings, and lines to print about them.

    Raises:
        ActlabError: if the number of processes is below 1 or ``engine.json`` is damaged.
    """
    if jobs is not None and jobs < 1:
        raise ActlabError(f"--jobs {jobs}: give a whole number from 1")
    path = root / FILE
    known: _StoredSettings = read_json(path, _StoredSettings, _REMEDY) if path.exists() else {}
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
            reason += "; they were compiled at the first start of the study, so last digits may differ"
        said.append(reason)
        wanted = replace(wanted, compiled=False)
    if not known:
        write_json(path, asdict(wanted))
    return wanted, said


def seats() -> int:
    """Return the number of accelerators, or without any the number of torch's threads."""
    return torch.accelerator.device_count() or torch.get_num_threads()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's messages about each run."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
