"""The notes below a study's table: progress, how to read the values and where they come from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from textwrap import shorten

from actlab.analysis import costs, selection
from actlab.analysis.choice import STABLE, Choice
from actlab.analysis.differences import EXACT
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, median, sampling_error
from actlab.analysis.study_table import Cell, StudyTable
from actlab.analysis.wording import few, plural
from actlab.studies.plan import Study
from actlab.studies.points import short_names
from actlab.studies.study_folder import COSTS

INTERVAL = "the interval between order statistics of the median, which covers at least 95 %"


BETTER = (
    " Better: the probability that a run is better than one of the reference, a failed run losing against all "
    "others; studentised permutation test (Brunner-Munzel)."
)


def remarks(table: StudyTable, results: Results) -> list[str]:
    """Return the state of the study, how to read the values and where they come from."""
    cells = [cell for row in table.rows for cell in row.columns]
    texts = [
        state(results),
        length(table.cut),
        *results.left_out,
        *results.metrics.unrecorded(results.planned),
        _surrogates(results),
        _gaps(table, results),
        _interval_text(table, cells),
        _selection(table, results),
        _edges(table),
        _test_set(cells),
        _tests(table, [cell for cell in cells if cell.family]),
        _untested(table, cells),
        _published(results.study),
        _cost(table, results),
        _added(table),
        _provenance(table),
    ]
    return [text for text in texts if text]


def length(cut: str) -> str:
    """Return how long the runs are, if that is not what the study's file states; else empty."""
    return f"These runs have {cut}." if cut else ""


def _surrogates(results: Results) -> str:
    surrogates = {
        name for name, result in results.results.items() if result.get("surrogate_gradient")
    }
    names = dict.fromkeys(
        results.text("model.activation", r.spelling) for r in results.runs if r.id in surrogates
    )
    return (
        f"Gradient declared a surrogate, not the derivative: {', '.join(names)}." if names else ""
    )


def _cost(table: StudyTable, results: Results) -> str:
    measured = costs.read(results.folder)[0] or not results.study.reference
    if results.results and not measured:
        return (
            f"Costs were not measured: the study's folder has no {COSTS} of these runs. The command that "
            "trained them measures them when it is repeated."
        )
    known = [row.cost for row in table.rows if row.cost]
    if not known:
        return ""
    text = (
        "Time of one update (forward, backward, optimiser) and memory kept for its backward pass "
        f"measured on {known[0]['hardware']}"
    )
    rounds = min(cost["rounds"] for cost in known)
    how = "in one round, which can be far off"
    if rounds > 1:
        how = f"the fastest of {rounds} rounds in turns"
    return f"{text}, {how}.{_spread(table)}"


def _spread(table: StudyTable) -> str:
    timed = [(row, row.cost.get("relative_in_parts", ())) for row in table.rows if row.cost]
    moved = [
        (max(parts) / min(parts), min(parts), max(parts), row)
        for row, parts in timed
        if len(parts) > 1
    ]
    if not moved:
        return ""
    _, low, high, row = max(moved, key=lambda entry: entry[0])
    return (
        f" In fifths of the rounds time / {table.reference_text} lies between {low:.2f} and {high:.2f} for "
        f"{table.label(row)}, and moves less for the others."
    )


def _added(table: StudyTable) -> str:
    added: dict[str, list[float]] = {}
    for row in table.rows:
        for seconds in (row.cost or {}).get("seconds_added_in_parts", ()):
            added.setdefault(table.label(row), []).append(1e3 * seconds)
    if not added:
        return ""
    spans = {
        name: f"{max(0, min(ms)):.2f} to {max(ms):.2f} ms"
        for name, ms in added.items()
        if max(ms) > 0
    }
    each = few([f"{spans.get(name, 'nothing measurable')} for {name}" for name in added])
    return (
        "These times leave out what actlab adds to an update in training where an activation or layer may draw "
        "random numbers: it seeds the global generators for each call, and may compute the clean loss in a "
        f"pass of its own. That adds {each}."
    )


def state(results: Results) -> str:
    """Return the progress of the study: ``17 of 90 runs finished``, and why runs failed."""
    ended = f"{len(results.results)} of {len(results.runs)} runs finished"
    if results.diverged:
        ended += f", {results.diverged} of which diverged"
    if not results.missing:
        return f"{ended}."
    failed = plural(len(results.failures), "run")
    reasons = Counter(results.failures.values()).items()
    causes = few(
        [f"{shorten(reason, 150)} ({plural(number, 'run')})" for reason, number in reasons]
    )
    if all(run.id in results.results or run.id in results.failures for run in results.study.runs()):
        stages = results.study.stages
        what = "stage" if stages and stages[-1].seeds != results.study.seeds else "study"
        return f"{ended}; the {what} is done except for {failed} that failed: {causes}."
    why = f"; {failed} failed: {causes}" if causes else ""
    return f"{ended}{why}; the study is unfinished, its values are preliminary."


def _published(study: Study) -> str:
    if not study.published.get("values"):
        return ""
    shown = " Published values at the end of training are left out." if study.cut else ""
    if study.samples:
        return "Published values are left out: these runs see samples, or a part of the data."
    return f"Published: {study.published.get('source', 'source not given')}.{shown}"


def _gaps(table: StudyTable, results: Results) -> str:
    """Return which columns lack the values of runs that have ended."""
    # The runs that lack each column
    gaps: dict[tuple[str, ...], list[Cell]] = {}
    for number, column in enumerate(table.rows[0].columns):
        lacking = []
        for row, group in zip(table.rows, results.groups, strict=True):
            cell, setting = row.columns[number], selection.chosen(results, group)
            if setting is None or (column.is_parameter and not cell.values):
                continue  # not each activation has a parameter of this name
            ended = [run for run in setting.runs if run.id in results.results]
            lacking += [run.id for run in ended if run.seed not in cell.values]
        if lacking:
            gaps.setdefault(tuple(lacking), []).append(column)
    if not gaps:
        return ""

    # Columns that lack the same runs together
    total = sum(row.finished + row.diverged for row in table.rows)
    texts = []
    for runs, columns in gaps.items():
        text = f"{' and '.join(column.name for column in columns)} for {len(runs)} of {total} runs"
        if len(runs) < total:
            text += f" ({few(runs)}): the medians are over the others"
        texts.append(text)
    probes = tuple(f"{probe.name}/" for probe in results.study.probes)
    ours = any(column.metric.startswith(probes) for columns in gaps.values() for column in columns)
    remedy = (
        " Run the same `actlab study run` command again to evaluate the missing probes."
        if ours
        else ""
    )
    return f"Not measured: {'; '.join(texts)}.{remedy}"


def _interval_text(table: StudyTable, cells: Sequence[Cell]) -> str:
    known = [(cell.n, cell.interval) for cell in cells if cell.n > 1 and cell.interval]
    exact = dict(
        sorted((n, interval.coverage) for n, interval in known if interval.kind == "interval")
    )
    coverages = ", ".join(f"{100 * covered:.1f} % with {n} runs" for n, covered in exact.items())
    meant = [f"{INTERVAL} ({coverages})"] if exact else []
    if any(interval.kind == "range" for _, interval in known):
        meant.append(f"the range of the runs (fewer than {FEWEST} give no interval)")
    if not meant:
        return ""
    worst = " A diverged run counts as the worst value." if table.diverged else ""
    has_mean = any(cell.mean is not None for cell in cells)
    means = " ±: mean and standard deviation over runs (n - 1)." if has_mean else ""
    return f"Medians over seeds; in brackets {' or '.join(meant)}.{worst}{means}"


def _selection(table: StudyTable, results: Results) -> str:
    if not table.tuned:
        return ""
    names = short_names(results.study.keys)
    tuned = " and ".join(names[key] for key in table.tuned)
    rule = results.study.select.value
    text = f"Chosen per row: {tuned} with the best median over seeds of the {rule} reached."
    if any(row.provisional and row.settings > 1 and row.chosen for row in table.rows):
        text += " * chosen while runs are missing."
    return text + _choice(table, results)


def _choice(table: StudyTable, results: Results) -> str:
    """Return which choices other seeds would often not make, and what these settings give on other seeds."""
    if any(stage.search for stage in results.study.stages):
        return " It is conditional on the settings that the search has proposed."
    words = selection.selected_by(results.study).text
    known = [
        (row.point.in_words(table.compare, table.text), row.choice)
        for row in table.rows
        if row.choice
    ]
    if not known:
        return ""
    if any(choice.again is None for _, choice in known):
        return " One seed chose: whether another would choose the same cannot be said."
    text = f" Resampling the {known[0][1].seeds} seeds that chose keeps the setting in "
    low = [(name, choice) for name, choice in known if choice.unstable]
    if not low:
        least = 100 * min(choice.again or 0 for _, choice in known)
        return f"{text}{'all cases' if least > 99.5 else f'at least {least:.0f} % of cases'}."
    each = [
        f"{100 * (choice.again or 0):.0f} % for {name}{_elsewhere(choice, words)}"
        for name, choice in low
    ]
    others = (
        f", and in at least {100 * STABLE:.0f} % for the others" if len(low) < len(known) else ""
    )
    seeds = "seeds left out" if results.chosen_in is None else "fresh seeds"
    return f"{text}{', '.join(each)}{others}; in brackets the median where it was chosen, and on {seeds}."


def _elsewhere(choice: Choice, text: Callable[[float], str]) -> str:
    values = [value for value in (choice.score, choice.elsewhere) if value is not None]
    return (
        f" ({', '.join(text(value) if math.isfinite(value) else 'diverged' for value in values)})"
    )


def _edges(table: StudyTable) -> str:
    if not any(row.edges for row in table.rows):
        return ""
    at_edges = []
    for row in table.rows:
        at_edges += [f"{key} of {table.label(row)}" for key in row.edges if key not in table.tuned]
    arguments = few(at_edges)
    return (
        "(edge): the chosen value is the lowest or highest that was tried, or within 2 % of the end of a "
        "search range; a better one may lie beyond it."
        + (f" So is {arguments}." if arguments else "")
    )


def _tests(table: StudyTable, cells: Sequence[Cell]) -> str:
    """Return how the cells of families were tested."""
    if not cells:
        return ""

    # Which comparisons there are
    primary = table.correction("primary").comparisons
    secondary = table.correction("secondary").comparisons
    column = table.rows[0].primary
    text = ""
    if primary:
        text = f"Primary: {plural(primary, 'comparison')} of {column.name} with {table.reference_text}. "
    if primary and secondary:
        others = "The other is" if secondary == 1 else f"The other {secondary} are"
        text += f"{others} secondary, and corrected as a family apart. "
    if all(cell.p is None for cell in cells):
        return (
            text
            + f"A comparison has a p when all its planned runs have ended, with {FEWEST} pairs or more."
        )

    # How they are tested
    looks = (
        f", multiplied by {factor(table.looks)} for look {table.looks + 1}" if table.looks else ""
    )
    drawn = "" if max(cell.pairs for cell in cells) <= EXACT else ", by drawn patterns"
    text += (
        f"p: two-sided sign-flip test of the mean difference over pairs of one seed{drawn}, alone and after "
        f"Holm's correction within its family{looks}. It is exact where both sides have the same distribution, "
        f"and approximate for the means of unlike ones. The interval inverts it and is not corrected.{BETTER}"
    )
    if any(cell.by_probability for cell in cells):
        text += (
            " Where a run failed (it diverged, or is at chance), p is that of the probability, and the mean is "
            "over the pairs in which both succeeded."
        )
    correlations = [
        cell.paired.correlation for cell in cells if cell.paired.correlation is not None
    ]
    if correlations:
        text += f" Values of one seed correlate by {median(correlations):+.2f} (median)."
    return f"{text} Intervals and p speak of seeds, on one test set and one split of the data."


def _untested(table: StudyTable, cells: Sequence[Cell]) -> str:
    text = ""
    if names := dict.fromkeys(cell.name for cell in cells if cell.biased):
        why = "these values are the best of several epochs or settings, not a fair sample"
        text = f"No p for {' and '.join(names)}: {why}."
    if any(row.reference_settings not in (None, row.settings) for row in table.rows):
        text += f" Rows that tried another number of settings than {table.reference_text} show both numbers; "
        text += "more settings are an advantage."
    return text.strip()


def _test_set(cells: Sequence[Cell]) -> str:
    shown = [cell for cell in cells if cell.sampling_error]
    of_shares = [
        cell for cell in shown if cell.sampling_error == sampling_error(cell.median, cell.samples)
    ]
    numbers = " or ".join(f"{size:,}" for size in sorted({cell.samples or 0 for cell in of_shares}))
    kinds = [f"from the number of samples, {numbers}"] if of_shares else []
    kinds += (
        ["from the spread over samples, sentences or tweets"] if len(shown) > len(of_shares) else []
    )
    text = f"Test set ±: standard error of a median {', or '.join(kinds)}."
    return f"{text} Both sides of a difference see the same samples." if kinds else ""


def _provenance(table: StudyTable) -> str:
    """Return seeds, versions and hardware of the runs in one line."""
    if not table.ended:
        return ""
    versions = ", ".join(
        f"{name} {' / '.join(several)}" for name, several in table.versions.items()
    )
    return f"Seeds {spans(table.seeds)}. {versions}. {' / '.join(table.hardware)}."


def spans(numbers: Sequence[int]) -> str:
    """Return whole numbers as text, three or more consecutive ones as a span: ``0, 2, 5–19``."""
    consecutive = groupby(enumerate(sorted(set(numbers))), key=lambda placed: placed[1] - placed[0])
    groups = [[number for _, number in group] for _, group in consecutive]
    return ", ".join(f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in groups)
