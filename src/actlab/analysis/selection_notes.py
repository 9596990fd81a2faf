"""The notes on selected settings: the rule, what other seeds would select, and ends of ranges."""

from __future__ import annotations

import math
from collections.abc import Callable

from actlab.analysis import selection
from actlab.analysis.choice import STABLE, Choice
from actlab.analysis.results import Results
from actlab.analysis.study_table import StudyTable
from actlab.analysis.wording import few
from actlab.studies.points import short_names


def selection_text(table: StudyTable, results: Results) -> str:
    """Return how the settings of rows were selected."""
    if not table.tuned:
        return ""

    # Name the tuned keys and the rule.
    names = short_names(results.study.keys)
    tuned = " and ".join(names[key] for key in table.tuned)
    rule = results.study.select.value
    text = f"Chosen per row: {tuned} with the best median over seeds of the {rule} reached."

    # Mark rows whose setting may still change.
    if any(row.provisional and row.settings > 1 and row.chosen for row in table.rows):
        text += " * chosen while runs are missing."
    return text + _choice(table, results)


def _choice(table: StudyTable, results: Results) -> str:
    """Return which settings other seeds would often not select, and their values on other seeds."""
    if any(stage.search for stage in results.study.stages):
        return " It is conditional on the settings that the search has proposed."

    # Collect the settings that other seeds would often not select.
    column = selection.selected_by(results.study)
    shares: list[float] = []
    unstable: list[str] = []
    seeds = 0
    for row in table.rows:
        choice = row.choice
        if choice is None:
            continue
        if choice.again is None:
            return (
                " One seed chose: whether another would choose the same cannot be said."
            )

        # Share of resamples that select the same setting, in percent
        seeds = seeds or choice.seeds
        share = 100 * choice.again
        shares.append(share)
        if choice.unstable:
            name = row.point.in_words(table.compare, table.text)
            unstable.append(
                f"{share:.0f} % for {name}{_elsewhere(choice, column.text)}"
            )
    if not shares:
        return ""

    # All settings are stable.
    text = f" Resampling the {seeds} seeds that chose keeps the setting in "
    if not unstable:
        if min(shares) > 99.5:
            return f"{text}all cases."
        return f"{text}at least {min(shares):.0f} % of cases."

    # List the unstable ones.
    text += ", ".join(unstable)
    if len(unstable) < len(shares):
        text += f", and in at least {100 * STABLE:.0f} % for the others"
    fresh = "seeds left out" if results.chosen_in is None else "fresh seeds"
    return f"{text}; in brackets the median where it was chosen, and on {fresh}."


def _elsewhere(choice: Choice, write: Callable[[float], str]) -> str:
    """Return the medians of a setting where it was selected and on other seeds, in brackets."""
    texts = []
    for value in (choice.score, choice.elsewhere):
        if value is not None:
            texts.append(write(value) if math.isfinite(value) else "diverged")
    return f" ({', '.join(texts)})"


def edge_text(table: StudyTable) -> str:
    """Return what a selected value at the end of a range means."""
    # Arguments of activations have no column that could show it.
    arguments = []
    has_edges = False
    for row in table.rows:
        for key in row.edges:
            has_edges = True
            if key not in table.tuned:
                arguments.append(f"{key} of {table.label(row)}")
    if not has_edges:
        return ""

    # Explain the mark in the table
    text = (
        "(edge): the chosen value is the lowest or highest that was tried, or within 2 % of the "
        "end of a search range; a better one may lie beyond it."
    )
    if arguments:
        text += f" So is {few(arguments)}."
    return text
