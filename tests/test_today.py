"""The statement about gates: its page follows from the stored runs and from formulas here."""

import itertools
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kept_results import RESULTS, ROOT, assert_same_page, program
from recomputed import holm


@pytest.fixture(scope="module")
def gates() -> Any:
    """The program that writes the page."""
    return program("today")


@pytest.fixture(scope="module")
def distances() -> Any:
    """D of each activation, by seed."""
    runs = pd.read_csv(RESULTS / "gpt_gates/values.csv")
    assert sorted(runs["seed"].unique()) == list(range(5, 20))
    losses = runs.set_index(["block", "model.activation", "seed"])["test/loss@last"].unstack()
    to_gelu = {form: losses.loc[form] - losses.loc[form, "gelu"] for form in ("plain", "gated")}
    return (to_gelu["plain"] - to_gelu["gated"]).drop("gelu")


def test_the_page_is_what_the_runs_give(gates):
    assert_same_page(
        RESULTS / "gates.md", gates.page(*gates.read()), "run: python results/today.py", atol=0.0011
    )


@pytest.mark.parametrize(
    ("p_within", "corrected", "same"),
    [(0.0125, 0.049, True), (0.0126, 0.049, False), (0.01, 0.05, False), (None, None, False)],
)
def test_within_the_margin_has_the_rule_of_studies(gates, p_within, corrected, same):
    d = gates.paired_difference([0.001, -0.001], [0.0, 0.0])
    to_gelu = (gates.paired_difference([0.2, 0.2], [0.0, 0.0]), d)
    row = gates.Row("relu", (0.1, 0.1), (2.0, 2.0), to_gelu, d, 0.9, p_within, corrected)
    assert row.verdict == ("the same within the margin" if same else "open")
    lower = row._replace(p_holm=0.01)
    assert lower.verdict.endswith("by less than the margin") == same


def test_differences_and_their_p_values_follow_from_the_runs(gates, distances):
    """The sign-flip test by all patterns of signs."""
    signs = np.array(list(itertools.product([1, -1], repeat=distances.shape[1])))
    sums = np.abs(signs @ distances.to_numpy().T)  # (patterns, activations)
    ps = (sums >= sums[0] * (1 - 1e-12)).mean(0)
    rows = {row.name: row for row in gates.judged(*gates.read())}
    assert len(rows) == len(distances) == 9
    for name, mean, p, corrected in zip(
        distances.index, distances.mean(axis=1), ps, holm(ps.tolist()), strict=True
    ):
        assert rows[name].d.mean == pytest.approx(mean)
        assert rows[name].d.p == pytest.approx(p)
        assert rows[name].p_holm == pytest.approx(corrected)
        assert rows[name].verdict.startswith(("closer", "farther")) == (corrected < 0.05)


def test_the_ratio_of_spreads_follows_from_the_runs(gates):
    runs = pd.read_csv(RESULTS / "gpt_gates/values.csv")
    means = runs.groupby(["block", "model.activation"])["test/loss@last"].mean()
    spread = means.groupby("block").std()
    losses, _ = gates.read()
    assert gates.spreads(losses)[2] == pytest.approx(spread["gated"] / spread["plain"])
    low, high = gates.ratio_interval(losses)
    assert low < spread["gated"] / spread["plain"] < high
    alike = losses.copy()
    alike[1] = alike[0] / 2  # the forms vary together over seeds, so the ratio does not
    assert gates.ratio_interval(alike) == pytest.approx((0.5, 0.5))


def test_missing_runs_are_named(gates, tmp_path):
    runs = pd.read_csv(RESULTS / "gpt_gates/values.csv")
    runs.drop(index=7).to_csv(tmp_path / "values.csv")
    with pytest.raises(SystemExit, match="a loss is missing or not finite"):
        gates.read(tmp_path)


@pytest.mark.parametrize("path", ["docs/guide/today.md", "results/gpt_gates/README.md"])
def test_pages_say_what_the_statement_says(gates, path):
    losses, rates = gates.read()
    text = " ".join((ROOT / path).read_text(encoding="utf-8").split())
    plain, gated, ratio = gates.spreads(losses)
    ((from_, to),) = re.findall(r"from (0\.\d+) to (0\.\d+) nats", text)
    assert [from_, to] == [f"{value:.3f}" for value in (plain, gated)]
    ((of, low, high),) = re.findall(
        r"ratio of (0\.\d+)[ ,(]*(?:95 % interval )?(0\.\d+) to (0\.\d+)\)", text
    )
    assert [of, low, high] == [f"{value:.2f}" for value in (ratio, *gates.ratio_interval(losses))]
    least, most = (f"{end:.2f}" for end in gates.ratio_interval(losses, activations=True))
    if path != "results/gpt_gates/README.md":
        assert f"Over other lists of activations, the ratio is {least} to {most}" in text
    rows = gates.judged(losses, rates)
    assert sum(row.verdict.startswith("closer") for row in rows) == 5
    assert not any(row.verdict.startswith("farther") for row in rows)
