"""What a start prints about the training of its runs."""

from __future__ import annotations

from collections.abc import Sequence

from actlab.analysis.wording import plural
from actlab.engines.jobs import Arranged, Job
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import FAILED


def summary(runs: int, arranged: Arranged) -> str:
    """Return ``training 6 runs, 5 of them in 1 stack, 2 processes``."""
    text = f"training {plural(runs, 'run')}"
    sizes = [len(job.runs) for job in arranged.jobs if len(job.runs) > 1]
    if sizes:
        if sum(sizes) < runs:
            text += f", {sum(sizes)} of them"
        text += f" in {plural(len(sizes), 'stack')}"
    if arranged.settings.jobs > 1:
        text += f", {arranged.settings.jobs} processes"
    return text


def print_held(jobs: Sequence[Job]) -> None:
    """Print how many runs other processes are training, if any."""
    number = sum(len(job.runs) for job in jobs)
    if number:
        verb = "is" if number == 1 else "are"
        print(
            f"{plural(number, 'run')} {verb} being trained by another process. Start the study "
            "again when it has ended, or wait for it with --wait."
        )


def print_early(epochs: Sequence[float]) -> None:
    """Print after which epochs runs ended early, if any did."""
    if not epochs:
        return
    after = f"{min(epochs):g}"
    if max(epochs) > min(epochs):
        after += f" to {max(epochs):g}"
    print(
        f"{plural(len(epochs), 'run')} ended before the last epoch, after epoch {after}"
    )


def print_failures(folders: Sequence[RunFolder]) -> int:
    """Print why runs failed; return how many did."""
    states = {folder.id: folder.state for folder in folders}
    failed = 0
    for name, state in states.items():
        if state.kind == FAILED:
            failed += 1
            print(f"{name} failed: {state.reason}")
    return failed
