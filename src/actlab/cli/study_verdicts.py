"""Seeds that the verdicts of a study need, and the record of verdicts that were shown."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from actlab.analysis import looks, verdict
from actlab.analysis.comparison import table_of
from actlab.analysis.results import Results
from actlab.analysis.study_table import StudyTable
from actlab.analysis.wording import duration
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.studies.study_folder import StudyFolder


def detection(folder: StudyFolder, stage: str | None, size: float) -> list[str]:
    """Return how many pairs a difference needs, a line for each verdict; see `verdict.needs`."""
    if not 0 < size < math.inf:
        raise ActlabError(
            f"--detect: expected a size above 0, such as 0.2, got {size}."
        )

    # The pairs so far tell the spread, without which no number of seeds can be told
    table = table_of(opening.load(folder, stage)[-1])
    lines = verdict.needs(table, size)
    if not lines:
        raise ActlabError(
            "--detect requires two finished pairs of runs with the reference, and a ranked test "
            "quantity. Run the study with a few seeds first."
        )
    return lines


def suggest(
    results: Results, table: StudyTable, words: Sequence[str], reference: str | None
) -> None:
    """Print the command that trains enough seeds for a verdict, if there are too few.

    Args:
        results: the results of the study.
        table: its table.
        words: the command after ``actlab``.
        reference: the value of ``--reference``.
    """
    # Find out whether more seeds would help
    outcomes = [comparison.outcome for comparison in table.verdicts]
    if not table.ended or "too few pairs" not in outcomes:
        return
    seeds = verdict.advised(table)
    # No margin is stated, or it requires too many seeds
    if seeds is None:
        return

    # Without a --reference, GELU is suggested if the study compares it.
    options = ["--seeds", str(seeds)]
    compared = [run.spelling for run in results.runs if isinstance(run.spelling, str)]
    if reference is None and "gelu" in compared:
        options += ["--reference", "gelu"]

    # Estimate the time from the mean of the runs so far
    seconds = sum(result.get("seconds", 0.0) for result in results.results.values())
    missing_runs = table.planned / len(table.seeds) * seeds - table.ended
    time = duration(seconds / table.ended * missing_runs)
    command = shlex.join(["actlab", *words, *options])
    print(
        f"\nThis command trains enough seeds for the margin, in about {time}:\n  {command}"
    )


def record_look(folder: StudyFolder, table: StudyTable) -> None:
    """Record the verdicts that are about to be shown; see `actlab.analysis.looks`."""
    looks.record(folder, [comparison.outcome for comparison in table.verdicts])
