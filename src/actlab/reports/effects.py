"""Comparisons of activations in each task and over tasks as text, for page and figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference
from actlab.analysis.over_tasks import Mean
from actlab.analysis.scoreboard import Board, ScoredTask
from actlab.analysis.statistics import FEWEST
from actlab.analysis.wording import plural
from actlab.config.keys import short
from actlab.reports.tables import NONE, mean_difference, number

READING = (
    "Mean difference to the reference, paired by seed, in the unit of each task, with the 95 % interval that "
    "inverts the sign-flip test, not corrected for the number of comparisons."
)
WITHOUT = (
    f"Without interval: fewer than {FEWEST} pairs, a quantity by which settings were selected, or runs that "
    "failed: the mean is then over the pairs in which both succeeded."
)


def compared(board: Board) -> list[tuple[ScoredTask, dict[str, Difference]]]:
    """Return the tasks with differences to a reference, and these: the user's activations, then the best."""
    order = sorted(board.labels, key=lambda label: label not in board.users)
    known = [(task, task.differences) for task in board.tasks if task.differences]
    return [(task, {label: of_task[label] for label in order if label in of_task}) for task, of_task in known]


def text(difference: Difference, column: Column) -> str:
    """Return a difference as printed: ``-0.10 [-0.17, -0.03]``; ``failed`` where it is not finite."""
    if difference.mean is None:
        return "failed"
    return mean_difference(difference.mean, difference.low, difference.high, column)


def pairs(differences: Collection[Difference]) -> str:
    """Return the number of pairs in words: ``15 pairs``, or ``3–15 pairs`` if it varies."""
    numbers = sorted({difference.pairs for difference in differences})
    return plural(numbers[0], "pair") if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]} pairs"


def direction(column: Column) -> str:
    """Return which differences are good."""
    return "lower is better" if column.worst > 0 else "higher is better"


def notes(boards: Sequence[Board]) -> list[str]:
    """Return how to read the differences of several boards; empty without any."""
    differences = [difference for b in boards for _, shown in compared(b) for difference in shown.values()]
    lacking = any(difference.low is None and difference.mean is not None for difference in differences)
    return [READING, WITHOUT] if lacking else [READING] if differences else []


def better(mean: Mean) -> str:
    """Return a mean over tasks as printed, with its intervals: ``0.62 [0.55, 0.70] [0.31, 0.90]``."""
    ends = [f"[{low:.2f}, {high:.2f}]" for low, high in filter(None, (mean.runs, mean.tasks))]
    return " ".join([f"{mean.probability:.2f}", *ends])


def tasks(mean: Mean) -> str:
    """Return of how many tasks a mean is: ``9 tasks of 4 studies``."""
    studies = "1 study" if mean.studies == 1 else f"{mean.studies} studies"
    return plural(mean.number, "task") + (f" of {studies}" if mean.studies < mean.number else "")


def median(task: ScoredTask, label: str) -> tuple[str, str]:
    """Return a median and its marks: the probability of being better, ``chance``, ``1 of 15 runs``."""
    if (place := task.places.get(label)) is None:
        return NONE, ""
    marks = [
        f"{task.wins[label].mean():.2f}" if label in task.wins else "",
        "chance" if place.chance else "",
        f"{place.n} of {place.most} runs" if place.n < place.most else "",
    ]
    return number(place.median, task.column, diverged=place.diverged), ", ".join(filter(None, marks))


def stem(board: Board) -> str:
    """Return the name of a board's figures without suffix: ``scoreboard-activation``."""
    return f"scoreboard-{''.join(c if c.isalnum() or c in '_-' else '_' for c in short(board.compare))}"
