"""How a study's processes train its runs.

On a CPU no digit depends on it. On a GPU, CUDA graphs may change the last digits, so the first
start stores in ``engine.json`` whether they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypedDict

from actlab.errors import ActlabError
from actlab.storage.json_files import stored_json, write_json

FILE = "engine.json"
# Updates of all runs from which on several processes save time
# (benchmarks/processes.py), and from which on compiled masks and the timing of updates
# (`actlab.engines.timing`) do.
SEVERAL, LONG = 2_000, 20_000
_REMEDY = "Delete it. The study then resumes with newly selected settings."


class _StoredSettings(TypedDict, total=False):
    """The content of ``engine.json``."""

    graphs: bool


@dataclass(frozen=True)
class Settings:
    """Execution settings of a study's processes."""

    jobs: int = 1  # 0 trains in the main process
    compiled: bool = False  # whether the functions that draw masks are compiled
    graphs: bool = False  # whether updates on a GPU are replayed as CUDA graphs

    def apply(self) -> None:
        """Apply the settings to this process, for good."""
        from actlab.random import masks
        from actlab.runtime import devices

        devices.graphs = self.graphs
        if self.compiled:
            masks.compile_masks()


def decide(
    root: Path,
    runs: int,
    updates: int,
    jobs: int | None,
    single_device: bool,
    graphs: bool | None = None,
    devices: Sequence[str] = (),
) -> Settings:
    """Return the settings of a start; called in a worker.

    Args:
        root: folder of the study, which stores whether CUDA graphs are used.
        runs: number of runs.
        updates: number of updates of all runs.
        jobs: number of processes that the user asks for. By default several runs of `SEVERAL`
            updates or more have one process per accelerator, or without accelerators per core.
        single_device: whether each run uses a single device. Runs on several devices are trained
            one after the other.
        graphs: what the user asks for, from this start on; by default what ``root`` has stored.
        devices: the accelerators of this machine.
    """
    import torch

    # Choose the number of processes
    number = 1 if jobs is None else jobs
    if not single_device:
        number = min(number, 1)
    elif jobs is None and runs > 1 and updates >= SEVERAL:
        number = len(devices) or torch.get_num_threads()

    # Decide once whether updates are replayed
    path = root / FILE
    stored = stored_json(path, _StoredSettings, _REMEDY)
    if graphs is None:
        graphs = stored.get("graphs", _are_graphs_right())
    if stored.get("graphs") != graphs:
        write_json(path, {"graphs": graphs})

    return Settings(number, updates >= LONG, graphs)


def _are_graphs_right() -> bool:
    """Return whether the accelerator of this process has shown CUDA graphs to be right."""
    import torch

    from actlab.runtime.devices import name_of
    from actlab.tasks.graphs import are_shown

    if not torch.cuda.is_available():
        return False
    name = name_of(torch.device("cuda"))
    return are_shown(name)


def check_jobs(jobs: int | None) -> None:
    """Raise an ActlabError for a negative number of processes."""
    if jobs is not None and jobs < 0:
        raise ActlabError(
            f"--jobs: expected 0 (train in this process) or a positive whole number, got {jobs}"
        )
