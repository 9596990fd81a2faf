"""Execution settings of a study: chosen at its first start, stored in ``engine.json``, reused later.

Compiled masks, the matmul backend, the number of threads, the size of stacks and CUDA graphs may change the
last digits of results. A resumed run therefore uses the settings of the first start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from actlab.errors import ActlabError
from actlab.storage.files import read_json, stored_json, write_json
from actlab.studies.stacks import Threads

FILE = "engine.json"
# Updates of all runs from which on several processes save time (benchmarks/processes.py), and from which on
# compiled masks and the timing of updates (`actlab.engines.timing`) do.
SEVERAL, LONG = 2_000, 20_000
UNTIMED = ""  # matmul backend: the default, until updates have been timed
_REMEDY = "delete it; the study then resumes with newly chosen settings"


class Decision(TypedDict):
    """Largest number of a group's runs in a stack: 0 if it has no limit, 1 where stacks are slower.

    The ``reason`` is empty unless the runs are trained one by one.
    """

    size: Annotated[int, Field(ge=0)]
    reason: str


class _StoredSettings(TypedDict, total=False):
    """The content of ``engine.json``: the `Settings` of an earlier start."""

    jobs: Annotated[int, Field(ge=0, le=10_000)]
    threads: Threads
    compiled: bool
    products: str
    stacks: dict[str, Decision]
    graphs: bool


@dataclass(frozen=True)
class Settings:
    """Execution settings of a study's processes."""

    jobs: int = 1  # 0 trains in the main process
    threads: int = 0  # of torch; 0 chooses them for each run alone
    compiled: bool = False  # whether the functions that draw dropout masks are compiled
    products: str = "default"  # matmul backend for float32 on the CPU (`actlab.runtime.matmul`)
    stacks: Mapping[str, Decision] = field(default_factory=dict)  # by key of each timed group
    graphs: bool = False  # whether updates on a GPU are replayed as CUDA graphs

    def apply(self) -> None:
        """Apply the settings to this process, for good."""
        import torch

        from actlab.random import streams
        from actlab.runtime import devices, matmul

        if self.threads:
            torch.set_num_threads(self.threads)
        matmul.use(self.products or matmul.DEFAULT)
        devices.graphs = self.graphs
        if self.compiled:
            streams.compile_masks()


def decide(
    root: Path,
    runs: int,
    updates: int,
    jobs: int | None,
    single_device: bool,
    shard: bool = False,
    graphs: bool | None = None,
) -> Settings:
    """Return the settings of a study's first start, or choose and store new ones; called in a worker.

    ``updates`` are those of all ``runs``. Without ``jobs`` given by the user, the number of processes is that
    of the first start, or for several runs of `SEVERAL` updates one per accelerator or core (`seats`). Runs on
    several devices are trained one after the other. The settings of a ``shard`` are fixed, not measured; where
    updates are to be timed, the matmul backend is `UNTIMED` until `keep` stores it. What the user says about
    ``graphs`` holds from this start on.
    """
    from actlab.runtime import matmul

    path = root / FILE
    known = stored_json(path, _StoredSettings, _REMEDY)
    long = updates >= LONG
    number = 1 if jobs is None else jobs
    if jobs is None and single_device:
        # A stored 0 was for a debugger, and does not hold for later starts.
        number = known.get("jobs") or (seats() if runs > 1 and updates >= SEVERAL else 1)
    timed = long and single_device and number > 0 and not shard
    wanted = Settings(
        jobs=number if single_device else min(number, 1),
        threads=known.get("threads", int(shard or number > 1)),
        compiled=known.get("compiled", long and not shard),
        products=known.get("products", UNTIMED if timed else matmul.DEFAULT),
        stacks=known.get("stacks", {}),
        graphs=known.get("graphs", _shown()) if graphs is None else graphs,
    )
    if not shard and (not known or graphs is not None):
        write_json(path, {**asdict(wanted), **known, "graphs": wanted.graphs})
    return wanted


def _shown() -> bool:
    """Return whether the accelerator of this process has shown CUDA graphs to be right."""
    import torch

    from actlab.runtime.devices import name_of
    from actlab.tasks.graphs import are_shown

    return torch.cuda.is_available() and are_shown(name_of(torch.device("cuda")))


def keep(root: Path, timed: Settings) -> None:
    """Store what updates were timed for: the matmul backend and the size of stacks."""
    known: _StoredSettings = read_json(root / FILE, _StoredSettings, _REMEDY)
    write_json(root / FILE, {**known, "products": timed.products, "stacks": timed.stacks})


def check_jobs(jobs: int | None) -> None:
    """Raise an ActlabError for a negative number of processes."""
    if jobs is not None and jobs < 0:
        raise ActlabError(f"--jobs {jobs}: give a whole number from 1, or 0 to train in this process")


def seats() -> int:
    """Return the number of accelerators, or without any the number of torch's threads."""
    import torch

    from actlab.runtime.devices import accelerators

    return len(accelerators()) or torch.get_num_threads()
