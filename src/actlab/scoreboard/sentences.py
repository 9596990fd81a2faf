"""The scoreboard in words, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping

from actlab.analysis.statistics import LEVEL, p_text
from actlab.analysis.study_table import StudyTable
from actlab.analysis.verdict import SMOKE
from actlab.analysis.wording import digits, joined, plural
from actlab.scoreboard import scores
from actlab.scoreboard.scores import Score, Scoreboard, Standing
from actlab.scoreboard.tables import DataName


def lines(scoreboard: Scoreboard) -> list[str]:
    """Return the user's activations in words; all activations if none is the user's."""
    if not scoreboard.users:
        return [sentence(standing, scoreboard.reference) for standing in scoreboard.standings]
    lines = []
    for rank, standing in enumerate(scoreboard.standings, 1):
        if standing.own:
            lines += ["", standing.label, *_details(standing, rank, scoreboard)]
    return lines


def _details(standing: Standing, rank: int, scoreboard: Scoreboard) -> list[str]:
    """Return an activation on each data set, over tasks, its rank, and compared with the best."""
    lines = [verdict(score, scoreboard.reference) for score in standing.on]
    lines.append(sentence(standing, scoreboard.reference))
    lines.append(f"Rank {rank} of {len(scoreboard.standings)}, without {scoreboard.reference}.")
    if standing.against_best:
        best = f"{scoreboard.standings[0].label}, the best (simultaneous interval)"
        lines.append(f"Its error is {standing.against_best} times that of {best}.")
    return lines


def sentence(standing: Standing, reference: str) -> str:
    """Return how an activation compares with the reference over tasks, in words."""
    # Compare over tasks, or else name the data sets
    words = [f"{standing.label}:"]
    scored = [score.name for score in standing.on if score.ratio]
    over = standing.over
    if over:
        data = f"{plural(over.tasks, 'task')}, {plural(over.datasets, 'data set')}"
        words.append(f"{over.here} times the error of {reference} on {data};")
        words.append(f"on others such as these {over.ratio},")
        words.append(f"practically equal with a probability of {over.equivalent:.2f}.")
    elif scored:
        words.append(f"only on {'; '.join(scored)}, which says nothing over tasks.")

    # Name failures
    if standing.failures:
        words.append(f"Failed on {'; '.join(standing.failures)}.")
    return " ".join(words)


def verdict(score: Score, reference: str) -> str:
    """Return how an activation compares with the reference on one data set, in words."""
    if score.ratio is None:
        return f"{score.name}: failed in {score.failed} of {score.runs} runs."
    words = [f"{score.name}: {score.ratio} times the error of {reference}"]
    if score.p is not None:
        # Failed runs count in p, not in the ratio, and so in the word
        word = "undecided"
        if score.p < LEVEL:
            word = "better" if (score.better or 0) > 0.5 else "worse"
        words.append(f"{word}, p {p_text(score.p)} after Holm's correction")

    # Count failed runs
    if score.failed:
        words.append(f"{score.failed} of {score.runs} runs failed")
    return "; ".join(words) + "."


def smoke_lines(user_tables: Mapping[DataName, StudyTable]) -> list[str]:
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
                lines.append(f"{data}: {table.label(row)}, {cell.metric} {value}, {runs}")

    # Show what whole runs add
    scoreboard = scores.load()
    example = sentence(scoreboard.standings[0], scoreboard.reference)
    lines.append(
        f"Without --smoke you get the ratio to {scoreboard.reference} with a verdict on each data "
        "set, the rank among the others, and a sentence over tasks, as for an activation of the "
        f"scoreboard: {example}"
    )
    return lines
