"""A job of an engine: the runs that one Trainer trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actlab.studies.plan import Run


@dataclass(frozen=True)
class Job:
    """A run or a stack of runs, trained by one Trainer.

    Args:
        id: id of the run, or of the stack; the name of the stack's folder.
        runs: the runs, in the order of the run axis.
        threads: number of torch's threads, which results depend on bit for bit; 0: chosen by the batch size.
    """

    id: str
    runs: tuple[Run, ...]
    threads: int = 0

    def checkpoint(self, root: Path) -> Path:
        """Return the path of a stack's checkpoint, which exists only during training."""
        return root / "stacks" / self.id / "last.ckpt"
