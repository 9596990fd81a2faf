"""How many processes train a study, and whether they compile masks: no digit depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from actlab.errors import ActlabError

# Updates of all runs from which on several processes save time (benchmarks/processes.py), and from which on
# compiled masks and the timing of updates (`actlab.engines.timing`) do.
SEVERAL, LONG = 2_000, 20_000


@dataclass(frozen=True)
class Settings:
    """Execution settings of a study's processes."""

    jobs: int = 1  # 0 trains in the main process
    compiled: bool = False  # whether the functions that draw masks are compiled

    def apply(self) -> None:
        """Apply the settings to this process, for good."""
        from actlab.random import streams

        if self.compiled:
            streams.compile_masks()


def decide(runs: int, updates: int, jobs: int | None, single_device: bool) -> Settings:
    """Return the settings of a start; called in a worker.

    ``updates`` are those of all ``runs``. Without ``jobs`` given by the user, several runs of `SEVERAL` updates
    have one process per accelerator or core (`seats`). Runs on several devices are trained one after the other.
    """
    number = 1 if jobs is None else jobs
    if not single_device:
        number = min(number, 1)
    elif jobs is None and runs > 1 and updates >= SEVERAL:
        number = seats()
    return Settings(number, updates >= LONG)


def check_jobs(jobs: int | None) -> None:
    """Raise an ActlabError for a negative number of processes."""
    if jobs is not None and jobs < 0:
        raise ActlabError(f"--jobs {jobs}: give a whole number from 1, or 0 to train in this process")


def seats() -> int:
    """Return the number of accelerators, or without any the number of torch's threads."""
    import torch

    return torch.accelerator.device_count() or torch.get_num_threads()
