"""The sentences about one comparison with the reference: its verdict, evidence and notes."""

from __future__ import annotations

import math
from typing import NamedTuple

from actlab.analysis.columns import Column, place, ratio_text
from actlab.analysis.differences import Superiority
from actlab.analysis.looks import FINAL
from actlab.analysis.power import MOST_PAIRS, detectable, pairs_to_detect
from actlab.analysis.statistics import LEVEL, p_text, pairs_needed
from actlab.analysis.study_table import Cell, Correction, Outcome, Row
from actlab.analysis.wording import plural


class Case(NamedTuple):
    """An activation and the reference in one test quantity, with the outcome of their comparison.

    A case has what the sentences need. `Comparison` is the record that users see.
    """

    name: str  # the activation, with its other grid values
    reference: str
    outcome: Outcome
    correction: Correction
    cell: Cell
    row: Row
    reference_row: Row | None

    @property
    def all_failed(self) -> bool:
        """Whether all runs of both sides failed."""
        return min(self.cell.failures) == self.cell.pairs

    @property
    def failure_text(self) -> str:
        """How many runs of both sides failed, ``failed 2 of 8 runs, 0 of relu``; empty if none."""
        activation_runs, reference_runs = self.cell.failures
        if activation_runs + reference_runs == 0:
            return ""

        # A value of an epoch column is the epoch at which a run reaches a threshold.
        event = "failed"
        if self.cell.is_epoch:
            event = "never reached by"
        runs = plural(self.cell.pairs, "run")
        return (
            f"{event} {activation_runs} of {runs}, {reference_runs} of {self.reference}"
        )

    @property
    def preliminary_text(self) -> str:
        """The mean difference before there is a verdict."""
        mean = self.cell.paired.mean
        difference = ""
        if self.cell.identical:
            difference = "identical"
        elif mean is not None:
            difference = self.cell.signed(mean)

        text = f"{difference} {quantity_text(self.cell)}".strip()
        if self.failure_text:
            text += f" ({self.failure_text})"
        return text


def case_text(case: Case) -> str:
    """Return a comparison in words: the verdict with its evidence, or why it is not final yet."""
    # A verdict with its evidence and notes, each of which begins with a space
    if case.outcome in FINAL:
        text = (
            _sentence(case)
            + _few_pairs(case)
            + _disagreement(case.cell)
            + _chance(case)
        )
        if case.outcome == "undecided":
            text += _almost_equivalent(case) + _outlook(case)
        return f"{case.name}: {text}{_choice(case)}"

    # No verdict yet
    reason = "too few pairs"
    if case.outcome == "unfinished":
        reason = "planned runs are missing"
    if case.cell.pairs:
        pairs = plural(case.cell.pairs, "pair")
        reason += f", so far {case.preliminary_text} in {pairs}"
    quantity = quantity_text(case.cell)
    return f"{case.name}: no verdict against {case.reference} in {quantity}, {reason}."


def brief(case: Case) -> tuple[str, str, str]:
    """Return a final comparison in few words: its verdict, its evidence, and its corrected p.

    The evidence is the mean difference with its interval, or how many runs failed. It is empty if
    all runs failed or are identical.
    """
    cell = case.cell

    # Equal values or no values leave nothing to test.
    if case.all_failed:
        return ("never reached" if cell.is_epoch else "both at chance"), "", ""
    if cell.identical:
        return "identical", "", ""

    # The verdict
    verdict: str = case.outcome
    p = cell.p_holm
    if case.outcome == "undecided":
        verdict = "no significant difference"
    elif case.outcome == "equivalent":
        verdict = f"equivalent within {margin_text(cell)}"
        p = cell.p_equivalent_holm
    elif cell.within_margin:
        verdict += " by less than the margin"
    if cell.at_chance and not cell.is_epoch:
        verdict += ", at chance"

    # The evidence
    evidence = case.failure_text
    mean, low, high = cell.paired.mean, cell.paired.low, cell.paired.high
    if not evidence and mean is not None and low is not None and high is not None:
        ends = [cell.text(end, signed=True) for end in (low, high)]
        evidence = f"{cell.signed(mean)} [{ends[0]}, {ends[1]}]"
    return verdict, evidence, "" if p is None else f"p = {p_text(p)}"


def detectable_difference(case: Case) -> float | None:
    """Return the difference that the pairs show with 80 % power; None if it is not known."""
    spread = case.cell.paired.sd
    effect = detectable(case.cell.pairs, case.correction.strictness())
    if not spread or effect is None:
        return None
    return effect * spread


def cost_text(row: Row, reference: str) -> str:
    """Return the time of an update relative to the reference; empty if it has no spread."""
    cost = row.cost or {}
    parts = cost.get("relative_in_parts", ())
    if len(parts) < 2:
        return ""
    ratio = (
        f"{cost['relative_to_reference']:.2f} ({min(parts):.2f} to {max(parts):.2f})"
    )
    return f" An update takes {ratio} times the time of {reference}."


def _sentence(case: Case) -> str:
    """Return the verdict with its evidence."""
    cell, reference = case.cell, case.reference
    quantity = quantity_text(cell)

    # A share holds for this test set only
    if cell.samples:
        quantity += " on this test set"
    pairs = plural(cell.pairs, "pair")

    # Equal values or no values leave nothing to test.
    if case.all_failed:
        event = "both at chance"
        if cell.is_epoch:
            event = "never reached"
        return f"{event} in {quantity}: all runs of it and of {reference} failed ({pairs})."
    if cell.identical:
        return f"identical to {reference} in {quantity}, run by run ({pairs})."

    # Collect the evidence; parts of it may be empty.
    parts = _evidence(case)
    if cell.better and cell.better.text:
        parts.append(f"probability of being better {cell.better.text}")
    parts.append(pairs)
    evidence = f"({'; '.join(filter(None, parts))})"

    # Write the verdict.
    if case.outcome == "equivalent":
        margin = margin_text(cell)
        return f"equivalent to {reference} within {margin} in {quantity} {evidence}."
    if case.outcome == "undecided":
        return f"no significant difference to {reference} in {quantity} {evidence}."
    return f"{case.outcome}{_effect(case, quantity)} {evidence}."


def _effect(case: Case, quantity: str) -> str:
    """Return by how much an activation is better or worse."""
    # Failed runs leave no size of the effect
    cell, reference = case.cell, case.reference
    mean = cell.paired.mean
    if any(cell.failures) or mean is None:
        return f" than {reference} in {quantity}"

    # A mean of logarithms is a ratio.
    if cell.by_ratio:
        effect = f", {ratio_text(mean)} times the {quantity} of {reference}"
    elif mean < 0:
        effect = f", {cell.size(mean)} lower {quantity} than {reference}"
    else:
        effect = f", {cell.size(mean)} higher {quantity} than {reference}"
    if cell.within_margin:
        effect += f", less than the margin of {margin_text(cell)}"
    return effect


def _evidence(case: Case) -> list[str]:
    """Return what decides, in words: who failed, or the interval; and p."""
    cell = case.cell
    mean, low, high = cell.paired.mean, cell.paired.low, cell.paired.high
    p = _corrected_p(case.correction, cell.p, cell.p_holm)

    # Failed runs leave no interval of the mean.
    if case.failure_text:
        parts = [case.failure_text, p]
        if mean is not None:
            parts.append(f"{cell.signed(mean)} where both succeeded")
        return parts

    # Without an interval the mean is not tested.
    if low is None or high is None:
        return []

    # The interval of the mean has no signs if the verdict says the side.
    if cell.by_ratio:
        ends = [ratio_text(low), ratio_text(high)]
    elif case.outcome in ("better", "worse") and low * high > 0:
        ends = [cell.text(end) for end in sorted([abs(low), abs(high)])]
    else:
        number, _, _ = cell.signed(low).partition(" ")
        ends = [number, cell.signed(high)]

    # Equivalence has two tests of its own.
    if case.outcome == "equivalent":
        p = _corrected_p(
            case.correction, cell.p_equivalent, cell.p_equivalent_holm, margin=True
        )
        p = f"two one-sided tests at 5 %, {p}"
    return [f"95 % interval {ends[0]} to {ends[1]}", p]


def _corrected_p(
    correction: Correction,
    raw: float | None,
    corrected: float | None,
    margin: bool = False,
) -> str:
    """Return a p-value before and after its correction, if there is any."""
    if raw is None or corrected is None:
        return ""
    text = f"p = {p_text(raw)}"

    # One test at the first look needs no correction.
    tests = correction.comparisons
    if margin:
        tests = correction.with_margin
    if tests <= 1 and not correction.looks:
        return text
    counted = correction.text(margin=margin)
    return f"{text} alone, {p_text(corrected)} after Holm's correction for {counted}"


def _few_pairs(case: Case) -> str:
    """Return that the pairs are too few for the mean difference, if the probability decides."""
    cell = case.cell
    if not cell.by_probability or case.failure_text or cell.identical:
        return ""
    if case.outcome == "equivalent":
        return ""  # it has tests of its own
    fewest = pairs_needed(case.correction.strictness())
    return (
        f" The p-value belongs to the probability of being better: {cell.pairs} pairs are too few "
        f"for the mean difference, which takes {fewest} after this correction."
    )


def _disagreement(cell: Cell) -> str:
    """Return a note if mean and probability, or an interval and its test, do not agree."""
    # Only a tested probability can disagree
    paired, superiority = cell.paired, cell.better or Superiority()
    probability, p = superiority.probability, superiority.p
    if probability is None or p is None:
        return ""

    # The interval of the probability
    if cell.by_probability:
        low, high = superiority.low, superiority.high
        has_half = low is not None and high is not None and low <= 0.5 <= high
        if has_half and p < LEVEL:
            return " The interval of the probability is approximate, and wider than the test."

    # Without a test of the mean there is nothing to disagree with.
    if paired.mean is None or paired.p is None:
        return ""
    ps = f"p = {p_text(paired.p)} for the mean difference, {p_text(p)} for the probability"

    # The sides: a positive gain is better.
    gain = paired.mean
    if cell.goal == "min":
        gain = -gain
    if gain * (probability - 0.5) < 0 and min(paired.p, p) < LEVEL:
        if gain > 0:
            return f" By the mean it is better, but it loses most pairs: {ps}."
        return f" By the mean it is worse, but it wins most pairs: {ps}."

    # The significance
    if (paired.p < LEVEL) != (p < LEVEL):
        return f" The two quantities disagree before correction: {ps}."
    return ""


def _chance(case: Case) -> str:
    """Return which sides failed in the median."""
    cell = case.cell

    # Collect the sides that failed.
    sides = []
    if cell.at_chance:
        sides.append("it")
    if cell.reference_at_chance:
        sides.append(case.reference)
    if not sides or case.all_failed:
        return ""

    # Say how they failed.
    if cell.is_epoch:
        return f" In the median {' and '.join(sides)} never did."
    if cell.chance is None:
        return f" In the median {' and '.join(sides)} failed."
    if len(sides) == 2:
        return f" Both it and {case.reference} are at chance."
    if cell.at_chance:
        return " It is at chance."
    return f" {case.reference} is at chance."


def _choice(case: Case) -> str:
    """Return a note if other seeds would often choose another setting of one side."""
    shares = []
    for side, row in (("it", case.row), (case.reference, case.reference_row)):
        if row and row.choice and row.choice.unstable:
            shares.append(f"{100 * (row.choice.again or 0):.0f} % for {side}")
    if not shares:
        return ""
    return f" Other seeds would choose the same setting in {' and '.join(shares)}."


def _almost_equivalent(case: Case) -> str:
    """Return that only the 97.5 % interval is in the way of equivalence; else empty."""
    cell = case.cell
    if cell.p_equivalent_holm is None or cell.p_equivalent_holm >= LEVEL:
        return ""
    p = _corrected_p(
        case.correction, cell.p_equivalent, cell.p_equivalent_holm, margin=True
    )
    return (
        f" It is not equivalent within {margin_text(cell)} either: two one-sided tests at 5 % show "
        f"it ({p}), but the 97.5 % interval exceeds the margin."
    )


def _outlook(case: Case) -> str:
    """Return which difference the pairs show, and how many show the margin, as a further look."""
    cell, correction = case.cell, case.correction
    spread = cell.paired.sd
    if not spread:
        return ""  # power needs a standard deviation

    # What these pairs show; the power of too few pairs is not known.
    text = ""
    difference = detectable_difference(case)
    if difference is not None:
        size = difference_text(difference, cell)
        text = f" {cell.pairs} pairs show {size} with 80 % power"
        if not cell.margin or cell.margin >= difference:
            return f"{text}."
    if not cell.margin:
        return ""

    # How many pairs show the margin
    needed = pairs_to_detect(
        cell.margin / spread, correction.strictness(further_looks=1)
    )
    margin = margin_text(cell)
    if difference is None:
        text = f" A difference of the margin, {margin}, takes {about(needed)} pairs"
    else:
        text += f"; one of the margin, {margin}, takes {about(needed)}"
    return f"{text}, including the correction for a further look."


def about(pairs: int | None) -> str:
    """Return a number of pairs in words; None is above `MOST_PAIRS`."""
    if pairs is None:
        return f"more than {MOST_PAIRS}"
    return f"about {pairs}"


def margin_text(cell: Cell) -> str:
    """Return the margin with its unit, and as many digits as it has."""
    if not cell.margin:
        return ""
    text = cell.size(cell.margin)
    if cell.by_ratio:
        return text

    # The margin on the scale on which it is printed
    exact = cell.margin
    if cell.in_percent:
        exact *= 100
    number, _, unit = text.partition(" ")

    # A fraction of a median has arbitrarily many digits, so three are enough.
    tolerance = 1e-9
    if cell.relative:
        tolerance = 5e-3
    if math.isclose(float(number), exact, rel_tol=tolerance):
        return text

    # The printed digits are not the margin: write more.
    return f"{exact:.6g} {unit}".strip()


def quantity_text(column: Column) -> str:
    """Return the quantity in words: ``test error``, ``noise test error (noise=1)``."""
    name = column.metric.replace("/", " ").replace("_", " ")
    details = []
    if column.condition:
        details.append(column.condition)
    if column.at != "last":
        details.append(place(column.at))
    if details:
        name += f" ({', '.join(details)})"
    return name


def difference_text(value: float, column: Column) -> str:
    """Return a difference in words: ``a difference of 0.20 points``, ``a ratio of 1.05``."""
    size = column.size(value)
    if column.by_ratio:
        return size
    return f"a difference of {size}"
