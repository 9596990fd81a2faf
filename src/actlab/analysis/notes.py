"""The notes below a study's table: progress, how to read the values and where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from actlab.analysis import costs, selection, selection_notes
from actlab.analysis.differences import EXACT
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, median, sampling_error
from actlab.analysis.study_table import Cell, StudyTable
from actlab.analysis.wording import few, plural
from actlab.studies.plan import Study
from actlab.studies.study_folder import COSTS

INTERVAL = (
    "the interval between order statistics of the median, which covers at least 95 %"
)


BETTER = (
    " Better: the probability that a run is better than one of the reference, a failed run losing "
    "against all others; studentised permutation test (Brunner-Munzel)."
)


def remarks(table: StudyTable, results: Results) -> list[str]:
    """Return the state of the study, how to read the values and where they come from."""
    cells: list[Cell] = []
    for row in table.rows:
        cells += row.columns

    # Each note is empty if it has nothing to say.
    texts = [
        state(results),
        *_about_runs(table, results),
        _interval_text(table, cells),
        selection_notes.selection_text(table, results),
        selection_notes.edge_text(table),
        _test_set(cells),
        _tests(table, cells),
        _untested(table, cells),
        _published(results.study),
        _cost(table, results),
        _added(table),
        _provenance(table),
    ]
    return list(filter(None, texts))


def caveats(table: StudyTable, results: Results) -> list[str]:
    """Return the notes that only some studies have: what is missing, or not as it seems."""
    edges = selection_notes.edge_text(table)
    texts = [*_about_runs(table, results), edges, _advantage(table)]
    texts.append(_published(results.study))
    if results.results and results.study.reference and not _measured(table):
        texts.append(_cost(table, results))
    return list(filter(None, texts))


def _about_runs(table: StudyTable, results: Results) -> list[str]:
    """Return how the runs differ from the plan, and what they lack; some texts may be empty."""
    return [
        length(table.cut),
        *results.left_out,
        *results.metrics.unrecorded(results.planned),
        _surrogates(results),
        _gaps(table, results),
    ]


def length(cut: str) -> str:
    """Return how long the runs are, if the study's file states another length; else empty."""
    return f"These runs have {cut}." if cut else ""


def _surrogates(results: Results) -> str:
    """Return which activations declare that their gradient is not the derivative."""
    names: dict[str, None] = {}
    for run in results.runs:
        result = results.results.get(run.id)
        if result and result.get("surrogate_gradient"):
            names[results.text("model.activation", run.spelling)] = None
    if not names:
        return ""
    return f"Gradient declared a surrogate, not the derivative: {', '.join(names)}."


def _cost(table: StudyTable, results: Results) -> str:
    """Return how and where costs were measured."""
    # A study without a reference compares no costs.
    entries, _ = costs.read(results.folder)
    if results.results and results.study.reference and not entries:
        return (
            f"Costs were not measured: the study's folder has no {COSTS} of these runs. The "
            "command that trained them measures them when it is repeated."
        )
    measured = _measured(table)
    if not measured:
        return ""

    # The group with the fewest rounds is the least certain.
    rounds = min(cost["rounds"] for cost in measured)
    method = "in one round, which can be far off"
    if rounds > 1:
        method = f"the fastest of {rounds} rounds in turns"
    return (
        "Time of one update (forward, backward, optimiser) and memory kept for its backward pass "
        f"measured on {measured[0]['hardware']}, {method}.{_spread(table)}"
    )


def _measured(table: StudyTable) -> list[Mapping[str, Any]]:
    """Return the costs of the rows whose costs were measured."""
    return [row.cost for row in table.rows if row.cost]


def _spread(table: StudyTable) -> str:
    """Return the relative time that differs most between parts of the rounds."""
    # Find the row with the widest range of ratios
    widest, text = 0.0, ""
    for row in table.rows:
        parts = (row.cost or {}).get("relative_in_parts", ())
        if len(parts) < 2:
            continue

        # Compare by the ratio of the ends.
        low, high = min(parts), max(parts)
        if high / low > widest:
            widest = high / low
            text = (
                f" In fifths of the rounds time / {table.reference_text} lies between {low:.2f} "
                f"and {high:.2f} for {table.label(row)}, and moves less for the others."
            )
    return text


def _added(table: StudyTable) -> str:
    """Return the time that reproducible random numbers add to an update."""
    # Collect the milliseconds of each activation.
    added: dict[str, list[float]] = {}
    for row in table.rows:
        for seconds in (row.cost or {}).get("seconds_added_in_parts", ()):
            times = added.setdefault(table.label(row), [])
            times.append(1e3 * seconds)
    if not added:
        return ""

    # Describe their range.
    texts = []
    for name, times in added.items():
        text = "nothing measurable"
        if max(times) > 0:
            text = f"{max(0, min(times)):.2f} to {max(times):.2f} ms"
        texts.append(f"{text} for {name}")
    return (
        "These times leave out what actlab adds to an update in training where an activation or "
        "layer may draw random numbers: it seeds the global generators for each call, and may "
        f"compute the clean loss in a pass of its own. That adds {few(texts)}."
    )


def state(results: Results) -> str:
    """Return the progress of the study, ``17 of 90 runs finished``, and why runs failed."""
    # Count the runs that have ended.
    text = f"{len(results.results)} of {len(results.runs)} runs finished"
    if results.diverged:
        text += f", {results.diverged} of which diverged"
    if not results.missing:
        return f"{text}."

    # Count the runs that failed for each reason.
    reasons = []
    for reason, number in Counter(results.failures.values()).items():
        reasons.append(f"{shorten(reason, 150)} ({plural(number, 'run')})")
    causes = few(reasons)
    failed = plural(len(results.failures), "run")

    # All runs that have not finished have failed.
    attempted = results.results.keys() | results.failures.keys()
    if all(run.id in attempted for run in results.study.runs()):
        stages = results.study.stages
        part = "study"
        if stages and stages[-1].seeds != results.study.seeds:
            part = "stage"
        return f"{text}; the {part} is done except for {failed} that failed: {causes}."

    # Runs are missing.
    if causes:
        text += f"; {failed} failed: {causes}"
    return f"{text}; the study is unfinished, its values are preliminary."


def _published(study: Study) -> str:
    """Return the source of published values, or why the table leaves them out."""
    if not study.published.get("values"):
        return ""
    if study.samples:
        return "Published values are left out: these runs see samples, or a part of the data."

    # A shorter run can be compared at an epoch only.
    text = f"Published: {study.published.get('source', 'source not given')}."
    if study.other_length:
        text += " Published values at the end of training are left out."
    return text


def _gaps(table: StudyTable, results: Results) -> str:
    """Return which columns lack the values of runs that have ended."""
    # Put columns together that lack the same runs.
    gaps: dict[tuple[str, ...], list[Cell]] = {}
    for number, column in enumerate(table.rows[0].columns):
        lacking = _lacking(table, results, number)
        if lacking:
            gaps.setdefault(tuple(lacking), []).append(column)
    if not gaps:
        return ""

    # Describe each gap.
    total = 0
    for row in table.rows:
        total += row.finished + row.diverged
    texts = []
    metrics: list[str] = []
    for runs, columns in gaps.items():
        names = []
        for column in columns:
            metrics.append(column.metric)
            names.append(column.name)
        text = f"{' and '.join(names)} for {len(runs)} of {total} runs"
        if len(runs) < total:
            text += f" ({few(runs)}): the medians are over the others"
        texts.append(text)
    text = f"Not measured: {'; '.join(texts)}."

    # Only probes can be evaluated again.
    probes = tuple(f"{probe.name}/" for probe in results.study.probes)
    if any(metric.startswith(probes) for metric in metrics):
        text += " Run the same `actlab study run` command again to evaluate the missing probes."
    return text


def _lacking(table: StudyTable, results: Results, number: int) -> list[str]:
    """Return the ids of the runs that have ended without a value in the column of a number."""
    lacking = []
    for row, group in zip(table.rows, results.groups, strict=True):
        cell = row.columns[number]
        setting = selection.selected_setting(results, group)
        if setting is None:
            continue
        if cell.is_parameter and not cell.values:
            continue  # the activation may have no parameter with this name

        for run in setting.runs:
            if run.id in results.results and run.seed not in cell.values:
                lacking.append(run.id)
    return lacking


def _interval_text(table: StudyTable, cells: Sequence[Cell]) -> str:
    """Return what the brackets after a median contain, and other values of the cells."""
    meanings = _bracket_meanings(cells)
    if not meanings:
        return ""

    text = f"Medians over seeds; in brackets {' or '.join(meanings)}."
    if table.diverged:
        text += " A diverged run counts as the worst value."
    if any(cell.mean is not None for cell in cells):
        text += " ±: mean and standard deviation over runs (n - 1)."
    return text


def _bracket_meanings(cells: Sequence[Cell]) -> list[str]:
    """Return what brackets after a median mean: an interval, a range of the runs, or either."""
    # Few runs have a range in place of an interval.
    coverages: dict[int, float] = {}
    has_range = False
    for cell in cells:
        if cell.n > 1 and cell.interval:
            if cell.interval.kind == "range":
                has_range = True
            else:
                coverages[cell.n] = cell.interval.coverage

    # Describe the brackets.
    meanings = []
    if coverages:
        parts = []
        for n, share in sorted(coverages.items()):
            parts.append(f"{100 * share:.1f} % with {n} runs")
        meanings.append(f"{INTERVAL} ({', '.join(parts)})")
    if has_range:
        meanings.append(f"the range of the runs (fewer than {FEWEST} give no interval)")
    return meanings


def _tests(table: StudyTable, cells: Sequence[Cell]) -> str:
    """Return how the cells of families were tested."""
    # Without families nothing is tested
    tested = [cell for cell in cells if cell.family]
    if not tested:
        return ""

    # No pair of sides has ended.
    text = _families(table)
    if all(cell.p is None for cell in tested):
        text += "A comparison has a p when all its planned runs have ended, "
        return f"{text}with {FEWEST} pairs or more."

    # How the mean difference is tested
    patterns = ""
    if max(cell.pairs for cell in tested) > EXACT:
        patterns = ", by drawn patterns"
    looks = ""
    if table.looks:
        looks = f", multiplied by {factor(table.looks)} for look {table.looks + 1}"
    text += (
        "p: two-sided sign-flip test of the mean difference over pairs of one seed"
        f"{patterns}, alone and after Holm's correction within its family{looks}. It is exact "
        "where both sides have the same distribution, and approximate for the means of unlike "
        f"ones. The interval inverts it and is not corrected.{BETTER}"
    )

    # When the probability decides
    by_probability = [
        cell for cell in tested if cell.by_probability and cell.p is not None
    ]
    with_failures = [cell for cell in by_probability if any(cell.failures)]
    if with_failures:
        text += (
            " Where a run failed (it diverged, or is at chance), p belongs to the probability of "
            "being better, and the mean is over the pairs in which both succeeded."
        )
    if len(with_failures) < len(by_probability):
        text += (
            " Where the pairs are too few for the mean difference to reach p < 0.05 after this "
            "correction, p belongs to the probability of being better."
        )

    # How far a common seed helps
    correlations = []
    for cell in tested:
        if cell.paired.correlation is not None:
            correlations.append(cell.paired.correlation)
    if correlations:
        text += (
            f" Values of one seed correlate by {median(correlations):+.2f} (median)."
        )
    return f"{text} Intervals and p cover other seeds, on one test set and one split of the data."


def _families(table: StudyTable) -> str:
    """Return how many comparisons are primary, and how many secondary."""
    primary = table.correction("primary").comparisons
    secondary = table.correction("secondary").comparisons
    if not primary:
        return ""

    column = table.rows[0].primary
    comparisons = plural(primary, "comparison")
    text = f"Primary: {comparisons} of {column.name} with {table.reference_text}. "
    if secondary:
        text += "The other is" if secondary == 1 else f"The other {secondary} are"
        text += " secondary, and corrected separately. "
    return text


def _untested(table: StudyTable, cells: Sequence[Cell]) -> str:
    """Return which columns have no p-value, and which rows had an advantage."""
    texts = []

    # The best of several values is biased.
    names = dict.fromkeys(cell.name for cell in cells if cell.biased)
    if names:
        texts.append(
            f"No p for {' and '.join(names)}: these values are the best of several epochs or "
            "settings, not a fair sample."
        )

    texts.append(_advantage(table))
    return " ".join(filter(None, texts))


def _advantage(table: StudyTable) -> str:
    """Return that rows tried more settings, of which the best is better by chance."""
    if all(row.reference_settings in (None, row.settings) for row in table.rows):
        return ""
    return (
        f"Rows that tried another number of settings than {table.reference_text} show both "
        "numbers; more settings are an advantage."
    )


def _test_set(cells: Sequence[Cell]) -> str:
    """Return what the standard errors of the test set were computed from."""
    # Collect the two kinds of errors.
    sizes = set()
    has_spread = False
    for cell in cells:
        if cell.sampling_error:
            # The error of a share follows from the number of samples.
            if cell.sampling_error == sampling_error(cell.median, cell.samples):
                sizes.add(cell.samples or 0)
            else:
                has_spread = True

    # Name the kinds.
    sources = []
    if sizes:
        numbers = " or ".join(f"{size:,}" for size in sorted(sizes))
        sources.append(f"from the number of samples, {numbers}")
    if has_spread:
        sources.append("from the spread over samples, sentences or tweets")
    if not sources:
        return ""
    return (
        f"Test set ±: standard error of a median {', or '.join(sources)}. "
        "Both sides of a difference see the same samples."
    )


def _provenance(table: StudyTable) -> str:
    """Return seeds, versions and hardware of the runs in one line."""
    if not table.ended:
        return ""

    # Several versions of one package are all named.
    versions = []
    for name, numbers in table.versions.items():
        versions.append(f"{name} {' / '.join(numbers)}")
    hardware = " / ".join(table.hardware)
    return f"Seeds {spans(table.seeds)}. {', '.join(versions)}. {hardware}."


def spans(numbers: Sequence[int]) -> str:
    """Return whole numbers as text, three or more consecutive ones as a span: ``0, 2, 5–19``."""
    # Collect consecutive numbers.
    groups: list[list[int]] = []
    for number in sorted(set(numbers)):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])

    # Write each span.
    texts = []
    for group in groups:
        if len(group) > 2:
            texts.append(f"{group[0]}–{group[-1]}")
        else:
            texts += map(str, group)
    return ", ".join(texts)
