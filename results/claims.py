"""Judge the papers' claims by the stored runs: ``python results/claims.py`` writes claims.md.

A hypothesis compares two sides on runs that are paired by seed. Its p-value is that of the
two-sided sign-flip test of the mean difference; where a run diverged there is no mean, and it is
that of the probability of being better, as in a study's verdicts. "Not worse" adds the margin to
the second side first. "Equal" takes two one-sided tests against the margin, whose 97.5 % interval
must lie inside it as in a study's verdicts, or, where the mean difference exceeds the margin, the
two-sided test of the excess. "Diverges" compares how many runs of each side diverged. Holm's
correction covers the hypotheses of a paper that have a p-value; the others are listed.
"""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from actlab.analysis.columns import Column
from actlab.analysis.differences import (
    Difference,
    Flips,
    Superiority,
    better,
    equivalent,
    paired_difference,
)
from actlab.analysis.statistics import FEWEST, INSIDE, LEVEL, holm, on_grid, p_text
from actlab.studies.states import DIVERGED

HERE = Path(__file__).parent
STUDIES = HERE.parent / "configs/studies"
SYMBOLS = {"lower": "<", "not_worse": "≤", "equal": "=", "diverges": "diverges more often than"}
VERDICTS = ("holds by mathematics", "holds by runs", "fails", "open", "no verdict", "not run")
NAMES = {
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "silu": "SiLU",
    "relu": "ReLU",
    "elu": "ELU",
    "leaky_relu": "leaky ReLU",
    "srelu": "shifted ReLU",
    "soi": "SOI map",
}
HEAD = f"""# The papers' claims

Every sentence of the two papers that a measurement or a proof can test, judged by the stored runs.
`python results/claims.py` writes this page from `claims.yaml`; a test compares the two.

- **holds by mathematics**: tests show it, to rounding or by simulation.
- **holds by runs**: all comparisons have the claimed direction, p < 0.05 after Holm's correction;
  or a benchmark shows it.
- **fails**: at least one comparison has the opposite direction, p < 0.05 after Holm's correction;
  or a benchmark refutes it.
- **open**: neither. Fewer than {FEWEST} pairs always are.
- **no verdict**: an effect is given, because the paper only speculates.
- **not run**: no runs here, or no study or probe yet.

Differences are means over pairs of runs with the same seed, first side minus second. The 95 %
interval inverts the sign-flip test and is not corrected. The tables have the p-value alone and
after Holm's correction. The correction covers all hypotheses of a paper that have a p-value, and
the CIFAR-100 comparison of the ELU paper separately. A hypothesis with fewer than {FEWEST} pairs is
listed without a p-value and not counted.

**The correction grows** with each hypothesis that is run, so a later verdict may differ from a
verdict of the date below. A study's own page corrects for its own table. A probe that compares no
pairs is judged by its own `rule` in `claims.yaml`. Intervals and p-values cover other seeds, on one
test set and one split of the data. The sign-flip test is exact if both sides have the same
distribution, and approximate for the means of different distributions. Differences of error are
percentage points.
"""


class Hypothesis(NamedTuple):
    """One comparison of a claim, and its outcome where there are runs.

    Args:
        claim: id of the claim.
        study: name of the study.
        kind: a key of `SYMBOLS`.
        quantity: a column of ``values.csv``, or an area.
        of: the key by which the sides differ.
        sides: the two compared values of this key.
        where: values of other keys.
        found: difference of the first side to the second; None without runs.
        won: probability that a run of the first side is better, where that decides; or the
            second's.
        diverged: numbers of diverged runs of both sides, of ``diverges``.
        margin: of ``not_worse`` and ``equal``, in the unit of the values; 0 for others.
        pairs: number of pairs of runs.
        p: the p-value; None with fewer than six pairs.
        p_holm: the p-value after Holm's correction over the family.
    """

    claim: str
    study: str
    kind: str
    quantity: str
    of: str
    sides: tuple[Any, ...]
    where: Mapping[str, Any]
    found: Difference | None = None
    won: Superiority | None = None
    diverged: tuple[int, int] = (0, 0)
    margin: float = 0.0
    pairs: int = 0
    p: float | None = None
    p_holm: float | None = None

    @property
    def verdict(self) -> str:
        """``holds`` or ``fails`` by the sign of a significant difference; ``open``; ``not run``."""
        if self.found is None:
            return "not run"
        if self.p_holm is None or self.p_holm >= LEVEL:
            return "open"
        if self.won:
            return "holds" if (self.won.probability or 0) > 0.5 else "fails"
        assert self.found.mean is not None
        size = abs(self.found.mean) if self.kind == "equal" else self.found.mean
        if self.kind == "equal" and size < self.margin and (self.p or 0) > INSIDE:
            return "open"
        return "holds" if size < self.margin else "fails"


@cache
def values_of(study: str) -> pd.DataFrame | None:
    """Return the runs' values of a study; None if it was not run here."""
    path = HERE / study / "values.csv"
    if not path.exists():
        return None
    runs, samples = pd.read_csv(path), samples_of(study)
    for column in samples.keys() & set(runs):
        runs[column] = [on_grid(value, samples[column]) for value in runs[column]]
    return runs


def samples_of(study: str) -> dict[str, int]:
    """Return the number of samples of each error of a study, by column of ``values.csv``."""
    path = STUDIES / f"{study}.yaml"
    table = yaml.safe_load(path.read_text(encoding="utf-8"))["table"] if path.exists() else []
    columns = [
        Column(**{key: c[key] for key in ("metric", "at", "condition", "samples") if key in c})
        for c in table
    ]
    return {column.key: column.samples for column in columns if column.samples}


@cache
def areas_of(study: str, metric: str) -> pd.DataFrame | None:
    """Return the runs with the area under a test metric over the noise strength."""
    runs, found = values_of(study), {}
    if runs is None:
        return None
    with tarfile.open(HERE / study / "runs.tar.xz") as archive:
        for part in archive:
            if "/probes/noise-" in part.name and (content := archive.extractfile(part)):
                rows = pd.read_parquet(io.BytesIO(content.read())).query("metric == @metric")
                strength = rows["condition"].str.removeprefix("noise=").astype(float)
                found[Path(part.name).parts[-3]] = np.trapezoid(rows["value"], strength)
    return runs.assign(area=runs["run"].map(found))


def hypotheses_of(claim: Mapping[str, Any]) -> Iterator[Hypothesis]:
    """Yield the hypotheses of a claim in the order of the file."""
    for entry in claim.get("hypotheses", ()):
        study, of = entry["study"], entry.get("of", "model.activation")
        kind = next(kind for kind in SYMBOLS if kind in entry)
        usual = "status" if kind == "diverges" else "area"
        places, columns = entry.get("where", [{}]), entry.get("columns", [usual])
        margin = 0.0 if entry.get("relative") else entry.get("margin", 0.0)
        for where, column, sides in product(places, columns, entry[kind]):
            name = f"log10 {column}" if entry.get("log") else column
            quantity = {"area": f"area under {entry.get('area')} over noise", "status": "runs"}.get(
                column, name
            )
            told = Hypothesis(
                claim["id"], study, kind, quantity, of, tuple(sides), where, margin=margin
            )
            runs = areas_of(study, entry["area"]) if column == "area" else values_of(study)
            if runs is not None:
                told = _judged(told, entry, *_pairs(told, runs, column, entry.get("never", np.inf)))
            yield told


def _pairs(
    h: Hypothesis, runs: pd.DataFrame, column: str, never: float
) -> tuple[list[float], list[float]]:
    """Return both sides' values for their common seeds; a diverged run of ``diverges`` counts 1."""
    for key, value in h.where.items():
        runs = runs[runs[key] == value]
    if h.kind == "diverges":
        runs = runs.assign(**{column: (runs["status"] == DIVERGED).astype(float)})
    first, second = (_side(h, side, runs, column).replace(np.inf, never) for side in h.sides)
    seeds = first.index.intersection(second.index)
    if not len(seeds):
        raise SystemExit(f"{h.study}: no pairs of runs for {_said(h)}")
    return first[seeds].tolist(), second[seeds].tolist()


def _side(h: Hypothesis, side: Any, runs: pd.DataFrame, column: str) -> pd.Series:
    """Return the values of one side by seed, of which each has one."""
    values = runs[runs[h.of] == side].set_index("seed")[column]
    if len(twice := values[values.index.duplicated()]):
        seed = twice.index[0]
        number = values.index.tolist().count(seed)
        raise SystemExit(
            f"results/{h.study}/values.csv: {h.of} {side} has {number} values of seed {seed}, "
            "and a pair takes one: choose by 'where' in claims.yaml, or give the stage that "
            "compares"
        )
    return values


def _judged(h: Hypothesis, entry: Mapping[str, Any], a: list[float], b: list[float]) -> Hypothesis:
    """Return the hypothesis with difference, margin and p-value."""
    if entry.get("log"):
        a, b = np.log10(a).tolist(), np.log10(b).tolist()
    h = h._replace(found=paired_difference(a, b), pairs=len(a), margin=_margin(entry, b))
    if h.kind == "diverges":
        won = better(b, a)  # the second side diverges less
        return h._replace(won=won, diverged=(int(sum(a)), int(sum(b))), p=won.p)
    if not np.isfinite([a, b]).all():
        won = better(a, [value + h.margin for value in b])
        return h._replace(won=won, p=None if h.kind == "equal" else won.p)
    if len(a) < FEWEST:
        return h
    differences = np.subtract(a, b)
    mean = float(differences.mean())
    if h.kind == "equal" and abs(mean) < h.margin:
        return h._replace(p=equivalent(differences.tolist(), h.margin))
    return h._replace(
        p=Flips(differences).p(-h.margin if h.kind == "equal" and mean < 0 else h.margin)
    )


def _margin(entry: Mapping[str, Any], second: Sequence[float]) -> float:
    """Return the margin in the values' unit; a relative one is a share of the second median."""
    return float(entry.get("margin", 0.0) * (np.median(second) if entry.get("relative") else 1.0))


def verdict_on(claim: Mapping[str, Any], verdicts: list[str]) -> str:
    """Return the verdict on a claim from its hypotheses, a key of `VERDICTS`; see `HEAD`."""
    if "measured" in claim:
        return "holds by runs" if claim["measured"] == "holds" else str(claim["measured"])
    ran = [verdict for verdict in verdicts if verdict != "not run"]
    if "fails" in ran:
        return "fails"
    if not ran:
        return "holds by mathematics" if "shown" in claim and not verdicts else "not run"
    complete = len(ran) == len(verdicts) and not claim.get("planned")
    return "holds by runs" if complete and set(ran) == {"holds"} else "open"


def page() -> str:
    """Return the page as Markdown."""
    papers = yaml.safe_load((HERE / "claims.yaml").read_text(encoding="utf-8"))
    families = [Family(paper) for paper in papers]
    return (
        "\n\n".join([HEAD.rstrip(), _counts(families), *(family.section() for family in families)])
        + "\n"
    )


class Family:
    """The claims of a paper with their verdicts: all its p-values are corrected together."""

    def __init__(self, paper: Mapping[str, Any]) -> None:
        self.name, self.judged, self.claims = paper["paper"], paper["judged"], paper["claims"]
        plain = [hypothesis for claim in self.claims for hypothesis in hypotheses_of(claim)]
        corrected = iter(holm([h.p for h in plain if h.p is not None]))
        tested = [h if h.p is None else h._replace(p_holm=next(corrected)) for h in plain]
        self.size = sum(h.p is not None for h in tested)
        if self.size != self.judged["hypotheses"]:
            raise SystemExit(
                f"results/claims.yaml, {self.name}: {self.size} hypotheses have a p-value, and "
                f"'judged' says {self.judged['hypotheses']} on {self.judged['date']}; give the "
                "number and date of the change"
            )
        self.of = {
            claim["id"]: [h for h in tested if h.claim == claim["id"]] for claim in self.claims
        }
        self.verdicts = {
            claim["id"]: verdict_on(claim, [h.verdict for h in self.of[claim["id"]]])
            for claim in self.claims
        }

    def section(self) -> str:
        """Return the tables of claims and hypotheses."""
        listed = [h for claim in self.claims for h in self.of[claim["id"]]]
        planned = sum(claim.get("planned", 0) for claim in self.claims)
        text = [f"## {self.name}", "", self._said(len(listed) - self.size, planned), ""]
        text += ["| id | section | claim | verdict | by |", "|---|---|---|---|---|"]
        for claim in self.claims:
            name, by = claim["id"], _by(claim, self.of[claim["id"]])
            text.append(
                f"| {name} | {claim['section']} | {claim['claim']} | "
                f"**{self.verdicts[name]}** | {by} |"
            )
        text += [
            "",
            f"| claim | study | quantity | hypothesis | {' | '.join(OUTCOME)} |",
            "|---" * 10 + "|",
        ]
        text += [
            f"| {h.claim} | {h.study} | {h.quantity} | {_said(h)} | {_outcome(h)} |" for h in listed
        ]
        return "\n".join(text)

    def _said(self, others: int, planned: int) -> str:
        """Return the numbers of claims and hypotheses, and the date of the last change."""
        lacking = f"; {others} more are listed without one" * bool(others)
        lacking += f", and {planned} have no study yet" * bool(planned)
        return (
            f"{len(self.claims)} claims, judged on {self.judged['date']}, when {self.size} "
            f"hypotheses had a p-value{lacking}."
        )


def _counts(families: Sequence[Family]) -> str:
    """Return how many claims have each verdict, by family and together."""
    found = {family.name: Counter(family.verdicts.values()) for family in families}
    found["all"] = sum(found.values(), Counter())
    text = [f"| claims | {' | '.join(VERDICTS)} |", "|---" * (1 + len(VERDICTS)) + "|"]
    text += [
        f"| {name} | {' | '.join(str(of[one]) for one in VERDICTS)} |" for name, of in found.items()
    ]
    return "\n".join(text)


def _by(claim: Mapping[str, Any], hypotheses: Sequence[Hypothesis]) -> str:
    """Return where a claim is shown, or what would show it."""
    parts = [
        f"[{test.partition('::')[2]}](../{test.partition('::')[0]})"
        for test in claim.get("shown", ())
    ]
    studies = dict.fromkeys(h.study for h in hypotheses)
    kept = [study for study in studies if (HERE / study / "README.md").exists()]
    parts += [f"[{study}](../results/{study}/README.md)" for study in kept]
    missing = [
        *(study for study in studies if values_of(study) is None),
        *filter(None, [claim.get("command")]),
    ]
    parts += [f"`actlab study run {study}`" for study in missing]
    return "; ".join(parts) + (". " if parts and "note" in claim else "") + claim.get("note", "")


def _said(h: Hypothesis) -> str:
    """Return a hypothesis in symbols: ``GELU < ELU (dropout 0)``, ``A ≤ B + 0.15``."""
    a, b = (_named(h.of, side) for side in h.sides)
    where = ", ".join(_named(*entry) for entry in h.where.items())
    margin = f" {'±' if h.kind == 'equal' else '+'} {_number(h.margin, h)}" if h.margin else ""
    return f"{a} {SYMBOLS[h.kind]} {b}{margin}{f' ({where})' if where else ''}"


def _named(key: str, value: Any) -> str:
    """Return the value of a key in words: ``GELU``, ``dropout 0.5``, ``batch_norm true``."""
    if isinstance(value, str):
        return NAMES.get(value, value)
    text = str(value).lower() if isinstance(value, bool) else format(value, "g")
    return f"{key.rpartition('.')[2]} {text}"


OUTCOME = ("pairs", "difference", "interval", "p", "p, Holm", "verdict")


def _outcome(h: Hypothesis) -> str:
    """Return the cells `OUTCOME`."""
    pairs, difference, interval = h.pairs, "–", "–"
    if h.kind == "diverges" and h.found:
        difference = f"{h.diverged[0]} against {h.diverged[1]} diverged"
    elif h.won:
        difference = f"first side better in {h.won.probability:.2f} of pairs of runs"
    elif h.found and h.found.mean is not None:
        difference = _number(h.found.mean, h)
    if h.won and h.won.low is not None and h.won.high is not None:
        interval = f"{h.won.low:.2f} to {h.won.high:.2f}"
    elif h.found and h.found.low is not None and h.found.high is not None:
        interval = f"{_number(h.found.low, h)} to {_number(h.found.high, h)}"
    ps = ("–" if p is None else p_text(p) for p in (h.p, h.p_holm))
    return " | ".join([str(pairs), difference, interval, *ps, h.verdict])


def _number(value: float, h: Hypothesis) -> str:
    """Return a difference with three digits; errors in percentage points."""
    scaled = 100 * value if "error@" in h.quantity else value
    return f"{scaled:.3g}".replace("-", "−")


if __name__ == "__main__":
    (HERE / "claims.md").write_text(page(), encoding="utf-8")
