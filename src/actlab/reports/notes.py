"""The notes below a study's table: progress, how to read the values and where they come from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from textwrap import shorten
from typing import Any

from actlab.analysis import comparison
from actlab.analysis.choice import STABLE, Choice
from actlab.analysis.comparison import TableRow
from actlab.analysis.differences import EXACT
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, median, sampling_error
from actlab.analysis.wording import few, plural
from actlab.studies.groups import by_key
from actlab.studies.points import short_names
from actlab.studies.study_folder import COSTS

INTERVAL = "the interval between order statistics of the median, which covers at least 95 %"


def footnotes(results: Results, brief: bool = False) -> list[str]:
    """Return all notes of a table, ``brief`` of one without probabilities: `remarks`, then the study's own."""
    return [*remarks(results, brief), *results.study.notes]


def remarks(results: Results, brief: bool = False) -> list[str]:
    """Return the state of the study, how to read the values and where they come from."""
    rows = comparison.rows(results)
    texts = [
        state(results),
        length(results),
        *results.left_out,
        *results.unrecorded,
        _surrogates(results),
        _gaps(results, rows),
        _interval_text(results, rows),
        _selection(results, rows),
        _edges(results, rows),
        _test_set(results, rows),
        _tests(results, rows, brief),
        _untested(results, rows),
        _published(results),
        _cost(results, rows),
        _added(results, rows),
        provenance(results),
    ]
    return [text for text in texts if text]


def length(results: Results) -> str:
    """Return how long the runs are, if that is not what the study's file states; else empty."""
    return f"These runs have {results.study.cut}." if results.study.cut else ""


def _surrogates(results: Results) -> str:
    surrogates = {name for name, result in results.results.items() if result.get("surrogate_gradient")}
    names = dict.fromkeys(results.text("model.activation", r.unit) for r in results.runs if r.id in surrogates)
    return f"Gradient declared a surrogate, not the derivative: {', '.join(names)}." if names else ""


def _cost(results: Results, rows: Sequence[TableRow]) -> str:
    if results.results and not results.costed:
        return (
            f"Costs were not measured: the study's folder has no {COSTS} of these runs. The command that "
            "trained them measures them when it is repeated."
        )
    costs = [row.cost for row in rows if row.cost]
    if not costs:
        return ""
    text = (
        "Time of one update (forward, backward, optimiser) and memory kept for its backward pass "
        f"measured on {costs[0]['hardware']}"
    )
    rounds = min(cost["rounds"] for cost in costs)
    how = "in one round, which can be far off"
    if rounds > 1:
        how = f"the fastest of {rounds} rounds in turns"
    return f"{text}, {how}.{_spread(results, rows)}"


def _spread(results: Results, rows: Sequence[TableRow]) -> str:
    timed = [(row, row.cost.get("relative_in_parts", ())) for row in rows if row.cost]
    moved = [(max(parts) / min(parts), min(parts), max(parts), row) for row, parts in timed if len(parts) > 1]
    if not moved:
        return ""
    _, low, high, row = max(moved, key=lambda entry: entry[0])
    key, base = results.study.compare, comparison.reference_text(results)
    return (
        f" In fifths of the rounds time / {base} lies between {low:.2f} and {high:.2f} for "
        f"{results.text(key, row.point.get(key))}, and moves less for the others."
    )


def _added(results: Results, rows: Sequence[TableRow]) -> str:
    key = results.study.compare
    timed = ((row.point.get(key), (row.cost or {}).get("seconds_added_in_parts", ())) for row in rows)
    added = by_key((results.text(key, value), 1e3 * part) for value, parts in timed for part in parts)
    if not added:
        return ""
    spans = {name: f"{max(0, min(ms)):.2f} to {max(ms):.2f} ms" for name, ms in added.items() if max(ms) > 0}
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
    causes = few([f"{shorten(reason, 150)} ({plural(number, 'run')})" for reason, number in reasons])
    if all(run.id in results.results or run.id in results.failures for run in results.study.runs()):
        stages = results.study.stages
        what = "stage" if stages and stages[-1].seeds != results.study.seeds else "study"
        return f"{ended}; the {what} is done except for {failed} that failed: {causes}."
    why = f"; {failed} failed: {causes}" if causes else ""
    return f"{ended}{why}; the study is unfinished, its values are preliminary."


def _published(results: Results) -> str:
    study = results.study
    if not study.published.get("values"):
        return ""
    shown = " Published values at the end of training are left out." if study.cut else ""
    if study.samples:
        return "Published values are left out: these runs see samples, or a part of the data."
    return f"Published: {study.published.get('source', 'source not given')}.{shown}"


def _gaps(results: Results, rows: Sequence[TableRow]) -> str:
    chosen = [(row, of) for row, of in zip(rows, map(results.chosen, results.groups), strict=True) if of]
    lacking = []
    for i, column in enumerate(results.columns):
        cells = [(row.cells[i].values, setting.runs) for row, setting in chosen]
        # Not each activation has a parameter of this name.
        sought = [(of, runs) for of, runs in cells if of or not column.is_parameter]
        pairs = [(of, run) for of, runs in sought for run in runs if run.id in results.results]
        lacking.append((tuple(run.id for of, run in pairs if run.seed not in of), column))
    gaps = by_key((runs, column) for runs, column in lacking if runs)
    if not gaps:
        return ""
    ended = sum(row.finished + row.diverged for row in rows)
    texts = [
        f"{' and '.join(column.name for column in columns)} for {len(runs)} of {ended} runs"
        + (f" ({few(runs)}): the medians are over the others" if len(runs) < ended else "")
        for runs, columns in gaps.items()
    ]
    probes = {f"{probe.name}/" for probe in results.study.probes}
    ours = any(column.metric.startswith(tuple(probes)) for columns in gaps.values() for column in columns)
    remedy = " Run the same `actlab study run` command again to evaluate the missing probes." if ours else ""
    return f"Not measured: {'; '.join(texts)}.{remedy}"


def _interval_text(results: Results, rows: Sequence[TableRow]) -> str:
    cells = [cell for row in rows for cell in row.cells if len(cell.values) > 1]
    known = [(len(cell.values), cell.interval) for cell in cells if cell.interval]
    exact = dict(sorted((n, interval.coverage) for n, interval in known if interval.kind == "interval"))
    coverages = ", ".join(f"{100 * covered:.1f} % with {n} runs" for n, covered in exact.items())
    meant = [f"{INTERVAL} ({coverages})"] if exact else []
    if any(interval.kind == "range" for _, interval in known):
        meant.append(f"the range of the runs (fewer than {FEWEST} give no interval)")
    if not meant:
        return ""
    worst = " A diverged run counts as the worst value." if results.diverged else ""
    means = " ±: mean and standard deviation over runs (n - 1)." if any(c.mean_and_sd for c in cells) else ""
    return f"Medians over seeds; in brackets {' or '.join(meant)}.{worst}{means}"


def _selection(results: Results, rows: Sequence[TableRow]) -> str:
    select = results.study.select
    if not select.tune:
        return ""
    names = short_names(results.study.keys)
    tuned = " and ".join(names[key] for key in select.tune)
    text = f"Chosen per row: {tuned} with the best median over seeds of the {select.value} reached."
    if any(row.provisional and row.tried > 1 and row.chosen for row in rows):
        text += " * chosen while runs are missing."
    return text + _choice(results, rows)


def _choice(results: Results, rows: Sequence[TableRow]) -> str:
    """Return which choices other seeds would often not make, and what these settings give on other seeds."""
    if any(stage.search for stage in results.study.stages):
        return " It is conditional on the settings that the search has proposed."
    compare, words = results.study.compare, results.selected_by.text
    known = [(row.point.in_words(compare, results.text), row.choice) for row in rows if row.choice]
    if not known:
        return ""
    if any(choice.again is None for _, choice in known):
        return " One seed chose: whether another would choose the same cannot be said."
    text = f" Resampling the {known[0][1].seeds} seeds that chose keeps the setting in "
    low = [(name, choice) for name, choice in known if choice.unstable]
    if not low:
        least = 100 * min(choice.again or 0 for _, choice in known)
        return f"{text}{'all cases' if least > 99.5 else f'at least {least:.0f} % of cases'}."
    each = [f"{100 * (choice.again or 0):.0f} % for {name}{_elsewhere(choice, words)}" for name, choice in low]
    others = f", and in at least {100 * STABLE:.0f} % for the others" if len(low) < len(known) else ""
    seeds = "seeds left out" if results.chosen_in is None else "fresh seeds"
    return f"{text}{', '.join(each)}{others}; in brackets the median where it was chosen, and on {seeds}."


def _elsewhere(choice: Choice, text: Callable[[float], str]) -> str:
    values = [value for value in (choice.score, choice.elsewhere) if value is not None]
    return f" ({', '.join(text(value) if math.isfinite(value) else 'diverged' for value in values)})"


def _edges(results: Results, rows: Sequence[TableRow]) -> str:
    if not any(row.edges for row in rows):
        return ""
    compare, columns = results.study.compare, results.study.select.tune
    at_edges = [(key, row.point.get(compare)) for row in rows for key in row.edges if key not in columns]
    arguments = few([f"{key} of {results.text(compare, value)}" for key, value in at_edges])
    return (
        "(edge): the chosen value is the lowest or highest that was tried, or within 2 % of the end of a "
        "search range; a better one may lie beyond it." + (f" So is {arguments}." if arguments else "")
    )


def _tests(results: Results, rows: Sequence[TableRow], brief: bool) -> str:
    cells = [cell for row in rows for cell in row.cells if cell.family]
    reference = comparison.reference_text(results)
    if not cells:
        return ""
    primary, secondary = (comparison.correction(results, name).comparisons for name in comparison.FAMILIES)
    text = ""
    if primary and results.primary:
        text = f"Primary: {plural(primary, 'comparison')} of {results.primary.name} with {reference}. "
    if primary and secondary:
        others = "The other is" if secondary == 1 else f"The other {secondary} are"
        text += f"{others} secondary, and corrected as a family apart. "
    if all(cell.p is None for cell in cells):
        return text + f"A comparison has a p when all its planned runs have ended, with {FEWEST} pairs or more."
    looks = f", multiplied by {factor(results.looks)} for look {results.looks + 1}" if results.looks else ""
    drawn = "" if max(cell.difference.pairs for cell in cells) <= EXACT else ", by drawn patterns"
    text += (
        f"p: two-sided sign-flip test of the mean difference over pairs of one seed{drawn}, alone and after "
        f"Holm's correction within its family{looks}. It is exact where both sides have the same distribution, "
        "and approximate for the means of unlike ones. The interval inverts it and is not corrected."
    )
    if not brief:
        text += (
            " Better: the probability that a run is better than one of the reference, a failed run losing "
            "against all others; studentised permutation test (Brunner-Munzel)."
        )
    if any(cell.by_probability for cell in cells):
        text += (
            " Where a run failed (it diverged, or is at chance), p is that of the probability, and the mean is "
            "over the pairs in which both succeeded."
        )
    if correlations := [c.difference.correlation for c in cells if c.difference.correlation is not None]:
        text += f" Values of one seed correlate by {median(correlations):+.2f} (median)."
    return f"{text} Intervals and p speak of seeds, on one test set and one split of the data."


def _untested(results: Results, rows: Sequence[TableRow]) -> str:
    text, reference = "", comparison.reference_text(results)
    if names := dict.fromkeys(c.column.name for row in rows for c in row.cells if c.biased):
        why = "these values are the best of several epochs or settings, not a fair sample"
        text = f"No p for {' and '.join(names)}: {why}."
    if any(row.reference_tried not in (None, row.tried) for row in rows):
        text += f" Rows that tried another number of settings than {reference} show both numbers; more settings"
        text += " are an advantage."
    return text.strip()


def _test_set(results: Results, rows: Sequence[TableRow]) -> str:
    shown = [cell for row in rows for cell in row.cells if cell.sampling_error]
    of_shares = [cell for cell in shown if cell.sampling_error == sampling_error(cell.median, cell.samples)]
    numbers = " or ".join(f"{size:,}" for size in sorted({cell.samples or 0 for cell in of_shares}))
    kinds = [f"from the number of samples, {numbers}"] if of_shares else []
    kinds += ["from the spread over samples, sentences or tweets"] if len(shown) > len(of_shares) else []
    text = f"Test set ±: standard error of a median {', or '.join(kinds)}."
    return f"{text} Both sides of a difference see the same samples." if kinds else ""


def provenance(results: Results) -> str:
    """Return seeds, versions and hardware of the runs in one line."""
    if not results.results:
        return ""
    known = facts(results)
    versions = ", ".join(f"{name} {' / '.join(several)}" for name, several in known["versions"].items())
    return f"Seeds {spans(known['seeds'])}. {versions}. {' / '.join(known['hardware'])}."


def facts(results: Results) -> dict[str, Any]:
    """Return counts, seeds, versions and hardware of the runs, without duplicates."""
    ended = results.results.values()
    return {
        "planned": len(results.runs),
        "finished": results.finished,
        "diverged": results.diverged,
        "seeds": list(results.study.seeds),
        "versions": by_key(dict.fromkeys(pair for result in ended for pair in result["versions"].items())),
        "hardware": list(dict.fromkeys(result["hardware"] for result in ended if "hardware" in result)),
    }


def spans(numbers: Sequence[int]) -> str:
    """Return whole numbers as text, three or more consecutive ones as a span: ``0, 2, 5–19``."""
    consecutive = groupby(enumerate(sorted(set(numbers))), key=lambda placed: placed[1] - placed[0])
    groups = [[number for _, number in group] for _, group in consecutive]
    return ", ".join(f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in groups)
