"""Differences between activations in each task, for terminal, page, forest plot and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference
from actlab.analysis.scoreboard import Board, Place, Task
from actlab.analysis.statistics import FEWEST
from actlab.reports.tables import number

READING = (
    "Mean difference to the reference, paired by seed, in the unit of each task, with the 95 % interval that "
    "inverts the sign-flip test, not corrected for the number of comparisons."
)
WITHOUT = f"Without interval: fewer than {FEWEST} pairs, or a quantity by which settings were selected."


class Effect(NamedTuple):
    """One activation in one task."""

    label: str
    own: bool  # whether it is the user's
    difference: Difference  # to the task's reference; without values where a run diverged
    place: Place


def effects(board: Board, task: Task) -> list[Effect]:
    """Return the activations of a task that have pairs with its reference: the user's, then by share beaten."""
    order = sorted(board.beaten, key=lambda label: label not in board.own)
    found = task.differences
    return [Effect(x, x in board.own, found[x], task.places[x]) for x in order if x in found]


def compared(board: Board) -> list[tuple[Task, list[Effect]]]:
    """Return the tasks in which activations can be compared with a reference, with their effects."""
    return [(task, found) for task in board.tasks if (found := effects(board, task))]


def text(difference: Difference, column: Column) -> str:
    """Return a difference as printed: ``-0.10 [-0.17, -0.03]``; ``diverged`` where it is not finite."""
    if difference.mean is None:
        return "diverged"
    mean, low, high = (number(value, column, signed=True) for value in difference[:3])
    return mean if difference.low is None else f"{mean} [{low}, {high}]"


def pairs(ones: Sequence[Effect]) -> str:
    """Return the number of pairs in words: ``15 pairs``, or ``3–15 pairs`` if it varies."""
    found = sorted({one.difference.pairs for one in ones})
    number = f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"
    return f"{number} pair{'s' * (number != '1')}"


def direction(column: Column) -> str:
    """Return which differences are good."""
    return "lower is better" if column.worst > 0 else "higher is better"


def name(task: Task) -> str:
    """Return a task's study and point: ``gelu_mnist_classifier, dropout 0.5``."""
    return ", ".join(filter(None, [str(task.record.table["study"]), task.point]))


def notes(boards: Sequence[Board]) -> list[str]:
    """Return how to read the differences of several boards; empty without any."""
    found = [(task, one) for board in boards for task, ones in compared(board) for one in ones]
    lacking = any(one.difference.low is None and one.difference.mean is not None for _, one in found)
    guessing = {name(task) for task, _ in found if task.reference and task.places[task.reference].guessing}
    said = [
        READING if found else "",
        WITHOUT if lacking else "",
        f"The reference is no better than guessing in: {'; '.join(sorted(guessing))}." if guessing else "",
    ]
    return [one for one in said if one]


def to_csv(boards: Sequence[Board]) -> str:
    """Return all differences as CSV with all digits; errors are fractions, and what does not exist is empty."""
    lines = []
    for board in boards:
        for task, ones in compared(board):
            column = task.column
            of = [task.record.table["study"], task.point, column.key, "min" if column.worst > 0 else "max"]
            for one in ones:
                paired = one.difference
                values = [paired.pairs, paired.mean, paired.low, paired.high, paired.p]
                lines.append([*of, one.label, task.reference, one.place.median, one.place.rank, *values])
    head = ["study", "point", "column", "mode", "activation", "reference", "median", "rank"]
    frame = pd.DataFrame(lines, columns=[*head, "pairs", "difference", "low", "high", "p"])
    return frame.to_csv(index=False, lineterminator="\n")
