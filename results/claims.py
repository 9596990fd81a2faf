"""Judge the papers' claims by the runs that are kept here: ``python results/claims.py`` writes claims.md.

A hypothesis compares two sides on runs that are paired by seed. Its p-value is that of the exact two-sided
sign-flip test of the mean difference. "Not worse" subtracts the margin first. "Equal" takes two one-sided tests
against the margin, or, where the mean difference exceeds it, the two-sided test of the excess. Holm's
correction covers all hypotheses of a paper, those without runs too.
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

from actlab.analysis.differences import Difference, paired_difference
from actlab.analysis.power import pairs_to_detect
from actlab.analysis.statistics import LEVEL, equivalent, holm, p_text, rounding

HERE = Path(__file__).parent
SYMBOLS = {"lower": "<", "not_worse": "≤", "equal": "="}
NAMES = {
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "silu": "SiLU",
    "relu": "ReLU",
    "elu": "ELU",
    "leaky_relu": "leaky ReLU",
    "srelu": "shifted ReLU",
}
HEAD = """# The papers' claims

Every sentence of the two papers that a measurement or a proof can test, judged by the runs that are kept here.
`python results/claims.py` writes this page from `claims.yaml`; a test compares the two.

- **holds**: shown by tests or a benchmark, or all comparisons have the claimed direction, p < 0.05 after Holm's
  correction.
- **fails**: at least one comparison has the opposite direction, p < 0.05 after Holm's correction.
- **open**: neither. Fewer than six pairs always are.
- **not run**: no runs here, or no study or probe yet.

Differences are means over pairs of runs with the same seed, first side minus second, with the 95 % interval of
the exact sign-flip test, not corrected. Holm's correction covers all hypotheses of a paper, those without runs
too; the ELU paper's CIFAR-100 comparison is a family of its own. A study's own page corrects for its own table,
which is less strict. Differences of error are percentage points.
"""


class Hypothesis(NamedTuple):
    """One comparison of a claim, and its outcome where there are runs.

    Args:
        claim: id of the claim.
        study: name of the study.
        kind: ``lower``, ``not_worse`` or ``equal``.
        quantity: a column of ``values.csv``, or an area.
        of: the key by which the sides differ.
        sides: the two compared values of this key.
        where: values of other keys.
        found: difference of the first side to the second; None without runs.
        margin: of ``not_worse`` and ``equal``, in the unit of the values; 0 for ``lower``.
        p: the p-value; None with fewer than six pairs.
        sd: standard deviation of the differences.
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
    margin: float = 0.0
    p: float | None = None
    sd: float = 0.0
    p_holm: float | None = None

    @property
    def verdict(self) -> str:
        """``holds`` or ``fails`` by the direction of a significant difference, ``open``, or ``not run``."""
        if self.found is None:
            return "not run"
        if self.found.mean is None or self.p_holm is None or self.p_holm >= LEVEL:
            return "open"
        size = abs(self.found.mean) if self.kind == "equal" else self.found.mean
        return "holds" if size < self.margin else "fails"


@cache
def values_of(study: str) -> pd.DataFrame | None:
    """Return the runs' values of a study; None if it was not run here."""
    path = HERE / study / "values.csv"
    return pd.read_csv(path) if path.exists() else None


@cache
def areas_of(study: str, metric: str) -> pd.DataFrame | None:
    """Return the runs with the area under a test metric over the strength of noise, from the archive."""
    runs, found = values_of(study), {}
    if runs is None:
        return None
    with tarfile.open(HERE / study / "runs.tar.xz") as archive:
        for part in archive:
            if part.name.endswith("probes/noise.parquet") and (content := archive.extractfile(part)):
                rows = pd.read_parquet(io.BytesIO(content.read())).query("metric == @metric")
                strength = rows["condition"].str.removeprefix("noise=").astype(float)
                found[Path(part.name).parts[-3]] = np.trapezoid(rows["value"], strength)
    return runs.assign(area=runs["run"].map(found))


def hypotheses_of(claim: Mapping[str, Any]) -> Iterator[Hypothesis]:
    """Yield the hypotheses of a claim in the order of the file."""
    for entry in claim.get("hypotheses", ()):
        study, of = entry["study"], entry.get("of", "model.activation")
        kind = next(kind for kind in SYMBOLS if kind in entry)
        places, columns = entry.get("where", [{}]), entry.get("columns", ["area"])
        for where, column, sides in product(places, columns, entry[kind]):
            quantity = f"area under {entry['area']} over noise" if column == "area" else column
            told = Hypothesis(claim["id"], study, kind, quantity, of, tuple(sides), where)
            runs = areas_of(study, entry["area"]) if column == "area" else values_of(study)
            if runs is not None:
                told = _judged(told, entry, *_pairs(told, runs, column, entry.get("never", np.inf)))
            yield told


def _pairs(h: Hypothesis, runs: pd.DataFrame, column: str, never: float) -> tuple[list[float], list[float]]:
    """Return the values of both sides for the seeds that both have."""
    for key, value in h.where.items():
        runs = runs[runs[key] == value]
    first, second = (
        runs[runs[h.of] == side].set_index("seed")[column].replace(np.inf, never) for side in h.sides
    )
    seeds = first.index.intersection(second.index)
    if not len(seeds):
        raise SystemExit(f"{h.study}: no pairs of runs for {_said(h)}")
    return first[seeds].tolist(), second[seeds].tolist()


def _judged(h: Hypothesis, entry: Mapping[str, Any], a: list[float], b: list[float]) -> Hypothesis:
    """Return the hypothesis with difference, margin and p-value."""
    found, differences = paired_difference(a, b), np.subtract(a, b)
    margin = entry.get("margin", 0.0) * (float(np.median(b)) if entry.get("relative") else 1.0)
    p = None
    if found.p is not None and found.mean is not None:
        if h.kind == "equal" and abs(found.mean) < margin:
            p = equivalent(differences, margin, rounding(a, b))
        else:
            edge = -margin if h.kind == "equal" and found.mean < 0 else margin
            p = paired_difference(a, [value + edge for value in b]).p
    return h._replace(found=found, margin=margin, p=p, sd=float(np.std(differences, ddof=1)))


def verdict_on(claim: Mapping[str, Any], verdicts: list[str]) -> str:
    """Return the verdict on a claim from those on its hypotheses; see the page's head."""
    if "measured" in claim:
        return str(claim["measured"])
    ran = [verdict for verdict in verdicts if verdict != "not run"]
    if "fails" in ran:
        return "fails"
    if not ran:
        return "holds" if "shown" in claim and not verdicts else "not run"
    complete = len(ran) == len(verdicts) and not claim.get("planned")
    return "holds" if complete and set(ran) == {"holds"} else "open"


def page() -> str:
    """Return the page as Markdown."""
    families = yaml.safe_load((HERE / "claims.yaml").read_text(encoding="utf-8"))
    return (
        "\n\n".join([HEAD.rstrip(), *(_section(family["paper"], family["claims"]) for family in families)])
        + "\n"
    )


def _section(paper: str, claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of a family of claims, within which p-values are corrected."""
    tested = [hypothesis for claim in claims for hypothesis in hypotheses_of(claim)]
    lacking = [None] * sum(claim.get("planned", 0) for claim in claims)
    number = len(tested) + len(lacking)
    corrected = holm([*(h.p for h in tested), *lacking])
    tested = [h._replace(p_holm=p) for h, p in zip(tested, corrected, strict=False)]
    of_claim = {claim["id"]: [h for h in tested if h.claim == claim["id"]] for claim in claims}
    verdicts = {claim["id"]: verdict_on(claim, [h.verdict for h in of_claim[claim["id"]]]) for claim in claims}
    counts = Counter(verdicts.values())
    words = {"holds": "hold", "fails": "fail", "open": "open", "not run": "not run"}
    told = ", ".join(f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict])
    text = [f"## {paper}", "", f"{len(claims)} claims: {told}. {number} hypotheses.", ""]
    text += ["| id | section | claim | verdict | by |", "|---|---|---|---|---|"]
    for claim in claims:
        name, by = claim["id"], _by(claim, of_claim[claim["id"]])
        text += [f"| {name} | {claim['section']} | {claim['claim']} | **{verdicts[name]}** | {by} |"]
    if rows := [
        f"| {h.claim} | {h.quantity} | {_said(h)} | {_outcome(h, number)} |" for h in tested if h.found
    ]:
        text += ["", "| claim | quantity | hypothesis | pairs | difference | p | verdict |"]
        text += ["|---|---|---|---|---|---|---|", *rows]
    return "\n".join(text)


def _by(claim: Mapping[str, Any], hypotheses: Sequence[Hypothesis]) -> str:
    """Return where a claim is shown, or what would show it."""
    parts = [f"[{test.partition('::')[2]}](../{test.partition('::')[0]})" for test in claim.get("shown", ())]
    studies = dict.fromkeys(h.study for h in hypotheses)
    kept = [study for study in studies if (HERE / study / "README.md").exists()]
    parts += [f"[{study}](../results/{study}/README.md)" for study in kept]
    missing = [*(study for study in studies if values_of(study) is None), *filter(None, [claim.get("command")])]
    parts += [f"`actlab study run {study}`" for study in missing]
    return "; ".join(parts) + (". " if parts and "note" in claim else "") + claim.get("note", "")


def _said(h: Hypothesis) -> str:
    """Return a hypothesis in symbols: ``GELU < ELU (dropout 0)``, ``A ≤ B + 0.15``, ``A = B ± 0.15``."""
    key = h.of.rpartition(".")[2]
    a, b = (f"{key} {side:g}" if isinstance(side, float | int) else NAMES.get(side, side) for side in h.sides)
    where = ", ".join(_named(*entry) for entry in h.where.items())
    margin = f" {'±' if h.kind == 'equal' else '+'} {_number(h.margin, h)}" if h.margin else ""
    return f"{a} {SYMBOLS[h.kind]} {b}{margin}{f' ({where})' if where else ''}"


def _named(key: str, value: Any) -> str:
    return str(NAMES.get(value, value)) if key == "model.activation" else f"{key.rpartition('.')[2]} {value:g}"


def _outcome(h: Hypothesis, number: int) -> str:
    """Return pairs, difference, p-value and verdict, with the pairs that would decide an open hypothesis."""
    assert h.found
    difference = "–" if h.found.mean is None else _number(h.found.mean, h)
    if h.found.low is not None and h.found.high is not None:
        difference += f" [{_number(h.found.low, h)}, {_number(h.found.high, h)}]"
    needed = None
    if h.verdict == "open" and h.p is not None and h.kind == "lower" and h.found.mean and h.sd:
        needed = pairs_to_detect(abs(h.found.mean) / h.sd, number)
    more = f" (a difference of this size: {needed} pairs)" if needed else ""
    return (
        f"{h.found.pairs} | {difference} | {'–' if h.p_holm is None else p_text(h.p_holm)} | {h.verdict}{more}"
    )


def _number(value: float, h: Hypothesis) -> str:
    """Return a difference with three digits; errors in percentage points."""
    scaled = 100 * value if "error@" in h.quantity else value
    return f"{scaled:.3g}".replace("-", "−")


if __name__ == "__main__":
    (HERE / "claims.md").write_text(page(), encoding="utf-8")
