"""What `conftest.py` changes in the tests' process, for processes that actlab's server forks."""

import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from actlab.engines import workers
from actlab.engines.settings import Settings


def serve(pipe: Connection, settings: Settings, device: str | None) -> None:
    """Serve as a worker of actlab, but time costs in one round: 25 take half as long as a study."""
    from actlab.checks import cost

    cost.ROUNDS = 1
    workers._serve(pipe, settings, device)


def serve_untried(pipe: Connection, settings: Settings, device: str | None) -> None:
    """Serve without trials of stacks, too."""
    from actlab.checks import stack_trial

    stack_trial.difference = lambda run: None
    stack_trial.dependence = lambda *_: None
    serve(pipe, settings, device)


def serve_with_gpus(
    free: Sequence[int], visible: str, log: Path, pipe: Connection, settings: Settings, device: Any
) -> None:
    """Serve on a machine with a GPU for each number of GiB of free memory, and log visible GPUs.

    The log has a file for each run, with the GPUs that its process sees, and a file ``counted``
    with the counts of each process.
    """
    import torch

    from actlab.engines import settings as execution
    from actlab.engines import training
    from actlab.runtime import devices

    def count() -> int:
        with (log / "counted").open("a") as file:
            file.write(os.environ[devices_variable] + "\n")
        return len(free)

    def work(job: Any, *rest: Any) -> Any:
        (log / job.id).write_text(os.environ[devices_variable])
        return known(job, *rest)

    devices_variable, known = "CUDA_VISIBLE_DEVICES", training.work
    os.environ[devices_variable] = visible
    torch.accelerator.device_count = count
    devices.free_memory = lambda device: free[device] * 2**30
    training.work = work  # type: ignore[assignment]
    execution.SEVERAL = 1
    serve_untried(pipe, settings, device)
