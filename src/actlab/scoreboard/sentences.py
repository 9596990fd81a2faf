"""The scoreboard in words, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping

from actlab.analysis.statistics import LEVEL, p_text
from actlab.analysis.study_table import StudyTable
from actlab.analysis.verdict import SMOKE
from actlab.analysis.wording import digits, joined, plural
from actlab.scoreboard import scores
from actlab.scoreboard.scores import Score, Scoreboard, Standing, TaskScore
from actlab.scoreboard.statistic import OverTasks
from actlab.scoreboard.tables import DataName

FAILS = "fails"  # in place of a ratio
NONE = "–"  # without runs, or where the reference fails


def lines(scoreboard: Scoreboard) -> list[str]:
    """Return the user's activations in words; all activations if none is the user's."""
    # All activations
    lines = not_run(scoreboard)
    if not scoreboard.users:
        for standing in scoreboard.standings:
            lines.append(sentence(standing, scoreboard))
        return lines
    for standing in scoreboard.standings:
        if standing.own:
            verdicts = [verdict(score, scoreboard) for score in standing.on]
            lines += ["", standing.label, *verdicts, *statements(standing, scoreboard)]
    return lines


def not_run(scoreboard: Scoreboard) -> list[str]:
    """Return a line with the tasks and data sets that have no results yet, if there are any."""
    if not scoreboard.not_run:
        return []
    return [f"Stated, not run yet: {'; '.join(scoreboard.not_run)}."]


def sentence(standing: Standing, scoreboard: Scoreboard) -> str:
    """Return how an activation compares with the others over tasks, in words."""
    return f"{standing.label}: {' '.join(statements(standing, scoreboard))}"


def statements(standing: Standing, scoreboard: Scoreboard) -> list[str]:
    """Return how an activation compares with the others over tasks, the most robust first."""
    reference = scoreboard.reference
    statements = [_rank(standing)]
    if standing.label != reference:
        # By task, without a model
        shares = [f"{name} {task.better:.2f}" for name, task in standing.tasks.items()]
        statements.append(
            f"A run is better than a run of {reference} with a probability of "
            f"{standing.better:.2f} ({', '.join(shares)})."
        )
        ratios = [f"{name} {ratio_text(task)}" for name, task in standing.tasks.items()]
        statements.append(
            f"Its error divided by the error of {reference}: {', '.join(ratios)}."
        )

        # Over tasks
        if standing.over:
            statements += _over_tasks(standing.over)
        if standing.against_best:
            best = f"{scoreboard.best}, which ranks first (simultaneous interval)"
            statements.append(
                f"Its error is {standing.against_best} times the error of {best}."
            )
    if standing.failures:
        statements.append(f"It fails on {'; '.join(standing.failures)}.")
    return statements


def _rank(standing: Standing) -> str:
    """Return the rank of an activation, and what it is ranked on."""
    rank = standing.rank
    if rank is None:
        return f"No rank: it has runs on {plural(len(standing.tasks), 'task')}, a rank needs two."
    data = f"{plural(rank.datasets, 'data set')} of {plural(rank.tasks, 'task')}"
    mean = f"with a mean rank of {rank.mean:.1f}"
    return f"Rank {rank.place} of {rank.among} on these {data}, {mean}."


def ratio_text(task: TaskScore) -> str:
    """Return the ratio of an activation on a task, or that it fails."""
    if task.fails:
        return FAILS
    return str(task.ratio or NONE)


def _over_tasks(over: OverTasks) -> list[str]:
    """Return the mean over tasks, and what it says of other tasks."""
    data = f"{plural(over.tasks, 'task')}, {plural(over.datasets, 'data set')}"
    statements = [
        f"The geometric mean over {data} is {over.here}.",
        f"Predicted are {over.mean.ratio} for the mean over tasks such as these, {over.task.ratio} "
        f"for one more task, and {over.dataset.ratio} for a data set of it.",
        f"On one more task it is better with a probability of {over.task.better:.2f}, and "
        f"practically equal with {over.task.equivalent:.2f}.",
    ]
    if over.mean.prior or over.task.prior or over.dataset.prior:
        statements.append(
            "The prior matters: twice or half its scales move an end of a predicted interval by "
            "more than a tenth."
        )
    return statements


def verdict(score: Score, scoreboard: Scoreboard) -> str:
    """Return how an activation compares with the reference on one data set, in words."""
    if score.fails:
        return f"{score.name}: failed in {score.failed} of {score.runs} runs."

    # Without a ratio the reference failed
    words = [f"{score.name}: {score.ratio} times the error of {scoreboard.reference}"]
    if score.ratio is None:
        words = [f"{score.name}: no ratio, because {scoreboard.reference} fails"]
    if score.p is not None:
        # Failed runs count in p, not in the ratio, and so in the word
        word = "undecided"
        if score.p < LEVEL:
            word = "better" if score.better > 0.5 else "worse"
        words.append(f"{word}, p {p_text(score.p)} after Holm's correction")

    # Count failed runs
    if score.failed:
        words.append(f"{score.failed} of {score.runs} runs failed")
    if score.edge:
        words.append("its setting is an end of what was tried")
    if score.unstable:
        words.append("other seeds often select another setting")
    return "; ".join(words) + "."


def smoke_lines(user_tables: Mapping[DataName, StudyTable], version: int) -> list[str]:
    """Return the values of smoke runs without a comparison, and what whole runs add."""
    # Values of the smoke runs
    lines = ["", f"Smoke scoreboard. {SMOKE}"]
    for name, table in user_tables.items():
        for part, rows in table.points:
            data = joined(*name, part)
            for row in rows:
                cell = row.primary
                value = "no finite value"
                if cell.median is not None and math.isfinite(cell.median):
                    value = digits(cell.median)
                runs = plural(cell.n, "run")
                lines.append(
                    f"{data}: {table.label(row)}, {cell.metric} {value}, {runs}"
                )

    # Show what whole runs add
    scoreboard = scores.load(version=version)
    example = sentence(scoreboard.standings[1], scoreboard)
    lines.append(
        f"Without --smoke you get the ratio to {scoreboard.reference} with a verdict on each data "
        "set, the rank among the others, and a sentence over tasks, as for an activation of the "
        f"scoreboard: {example}"
    )
    return lines
