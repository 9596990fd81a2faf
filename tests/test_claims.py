"""The page of the papers' claims: every claim once, verdicts recomputed, targets exist."""

import ast
import io
import re
import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import rankdata, spearmanr, ttest_1samp

from actlab.analysis.differences import EXACT
from kept_results import RESULTS, ROOT, assert_same_page, program
from recomputed import holm, two_sided, within

CLAIMS: list[Mapping[str, Any]] = [
    claim
    for family in yaml.safe_load((ROOT / "results/claims.yaml").read_text(encoding="utf-8"))
    for claim in family["claims"]
]


@pytest.fixture(scope="module")
def ledger() -> Any:
    """The program that writes the page."""
    return program("claims")


def test_every_claim_is_listed_once():
    expected = [f"P{n}" for n in range(1, 29)] + [f"E{n}" for n in range(1, 23)]
    assert sorted(claim["id"] for claim in CLAIMS) == sorted(expected)


def test_the_page_is_what_the_runs_give(ledger):
    assert_same_page(RESULTS / "claims.md", ledger.page(), "run: python results/claims.py")


def test_tests_and_studies_of_the_claims_exist():
    for claim in CLAIMS:
        assert {"shown", "hypotheses", "note", "command", "planned"} & set(claim), claim["id"]
        for place in claim.get("shown", ()):
            path, _, name = place.partition("::")
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
                place
            )
        assert "measured" not in claim or {"benchmarks", "results"} & set(
            re.split(r"\W", claim["note"])
        ), claim["id"]
        studies = [entry["study"] for entry in claim.get("hypotheses", ())]
        for study in [*studies, *filter(None, [claim.get("command")])]:
            places = (f"configs/studies/{study}.yaml", f"results/{study}/README.md")
            assert any((ROOT / place).exists() for place in places), study


def judged(ledger: Any, kind: str, differences: Any, margin: float = 0.0) -> Any:
    """A hypothesis about ten pairs with the given differences."""
    a = (5.0 + np.asarray(differences)).tolist()
    return ledger._judged(hypothesis(ledger, kind), {"margin": margin}, a, [5.0] * 10)


def hypothesis(ledger: Any, kind: str) -> Any:
    return ledger.Hypothesis("P0", "none", kind, "value", "unit", ("a", "b"), {})


@pytest.mark.parametrize("mean", [-1.5, -0.2, 0.0, 0.3, 2.0])
def test_p_values_are_those_of_all_sign_patterns(ledger, mean):
    d = mean + 0.7 * np.random.default_rng(1).standard_normal(10)
    d += mean - d.mean()
    assert judged(ledger, "lower", d).p == pytest.approx(two_sided(d))
    assert judged(ledger, "not_worse", d, 0.5).p == pytest.approx(two_sided(d - 0.5))
    equal = judged(ledger, "equal", d, 0.5)
    if abs(mean) < 0.5:
        assert equal.p == pytest.approx(within(d, 0.5))
    else:
        assert equal.p == pytest.approx(two_sided(d - np.sign(mean) * 0.5))
    # Of the size that the t-test finds, which the sign-flip test approximates.
    assert judged(ledger, "lower", d).p == pytest.approx(ttest_1samp(d, 0).pvalue, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [
        ("lower", {-1.0: "holds", 0.0: "open", 1.0: "fails"}),
        ("not_worse", {-0.1: "holds", 0.5: "open", 1.0: "fails"}),
        ("equal", {0.1: "holds", 0.41: "open", 0.5: "open", -1.0: "fails"}),
    ],
)
def test_verdicts_follow_direction_and_p(ledger, kind, verdicts):
    for mean, verdict in verdicts.items():
        one = judged(
            ledger, kind, np.linspace(-0.2, 0.2, 10) + mean, 0.0 if kind == "lower" else 0.5
        )
        assert one._replace(p_holm=one.p).verdict == verdict
        assert one._replace(p_holm=None).verdict == "open"
        if mean == 0.41:  # its 97.5 % interval exceeds the margin
            assert one.p == 0.03125
        assert one._replace(found=None).verdict == "not run"


def test_a_claim_holds_when_all_its_hypotheses_do(ledger):
    cases: list[tuple[Mapping[str, Any], str, str]] = [
        *(
            ({}, "holds holds", "holds by runs"),
            ({}, "holds open", "open"),
            ({}, "holds not_run", "open"),
        ),
        *(({}, "open fails", "fails"), ({}, "not_run", "not run")),
        *(({"planned": 1}, "holds", "open"), ({"planned": 1}, "", "not run")),
        *(
            ({"shown": ["a test"]}, "", "holds by mathematics"),
            ({"shown": ["a test"]}, "not_run", "not run"),
        ),
        *(({"measured": "fails"}, "", "fails"), ({"measured": "holds"}, "", "holds by runs")),
    ]
    for claim, verdicts, expected in cases:
        of_each = [verdict.replace("_", " ") for verdict in verdicts.split()]
        assert ledger.verdict_on(claim, of_each) == expected, (claim, verdicts)


def recomputed(ledger: Any, h: Any, never: float) -> float:
    """The p-value of a hypothesis by all sign patterns of the differences in ``values.csv``."""
    # Read the runs of the hypothesis
    if h.quantity.startswith("area"):
        column = "area"
        runs = ledger.areas_of(h.study, h.quantity.split()[2])
    else:
        column = h.quantity.removeprefix("log10 ")
        runs = ledger.values_of(h.study)
    runs = runs.loc[(runs[list(h.where)] == pd.Series(h.where)).all(axis=1)]

    # Pair the values by seed
    values = runs.pivot(index="seed", columns=h.of, values=column).replace(np.inf, never)
    if h.quantity.startswith("log10 "):
        values = np.log10(values)
    differences = (values[h.sides[0]] - values[h.sides[1]]).dropna().to_numpy()

    # Test the claimed difference
    mean = differences.mean()
    if h.kind != "equal":
        return two_sided(differences - h.margin)
    if abs(mean) < h.margin:
        return within(differences, h.margin)
    return two_sided(differences - h.margin * np.sign(mean))


def test_every_p_is_recomputed_from_the_values(ledger):
    """Alone, and corrected over the hypotheses of the paper that have one."""
    number = 0
    for paper in yaml.safe_load((ROOT / "results/claims.yaml").read_text(encoding="utf-8")):
        entries = {
            (claim["id"], entry["study"], column): entry.get("never", np.inf)
            for claim in paper["claims"]
            for entry in claim.get("hypotheses", ())
            for column in entry.get("columns", ())
        }
        tested = [h for of in ledger.Family(paper).of.values() for h in of if h.p is not None]
        expected = [
            h.p
            if h.won
            else recomputed(ledger, h, entries.get((h.claim, h.study, h.quantity), np.inf))
            for h in tested
        ]
        drawn = [h.pairs > EXACT for h in tested]  # by 100,000 patterns
        assert [h.p for h in tested] == [
            pytest.approx(p, abs=2e-3) if of_drawn else pytest.approx(p)
            for p, of_drawn in zip(expected, drawn, strict=True)
        ]
        assert [h.p_holm for h in tested] == pytest.approx(holm([h.p for h in tested]))
        number += len(tested)
    assert number > 30


@pytest.mark.parametrize(
    ("verdict", "more", "fewer"), [("holds", 6, 0), ("open", 2, 1), ("fails", 0, 6)]
)
def test_diverging_is_judged_by_the_share_of_diverged_runs(ledger, verdict, more, fewer):
    runs = pd.DataFrame({"unit": ["a"] * 6 + ["b"] * 6, "seed": [*range(6)] * 2})
    runs["status"] = [
        "diverged" if s < (more if u == "a" else fewer) else "finished" for u, s in runs.values
    ]
    asked = hypothesis(ledger, "diverges")
    one = ledger._judged(asked, {}, *ledger._pairs(asked, runs, "status", np.inf))
    assert one._replace(p_holm=one.p).verdict == verdict
    assert f"| {more} against {fewer} diverged |" in f"| {ledger._outcome(one)} |"


def test_a_diverged_run_is_judged_by_the_probability_of_being_better(ledger):
    few = ledger._judged(
        hypothesis(ledger, "lower"), {}, [1.0, 2, 3, 4, 5, 6], [7.0, 8, 9, 10, 11, np.inf]
    )
    assert few.p == pytest.approx(2 / 924)  # the two splits of 12 values that are as far apart
    assert few._replace(p_holm=few.p).verdict == "holds"
    assert (
        ledger._judged(hypothesis(ledger, "equal"), {"margin": 1}, [np.inf] * 6, [1.0] * 6).p
        is None
    )


def test_a_hypothesis_is_written_in_symbols(ledger):
    units, at, rates = ("gelu_tanh", "elu"), {"model.network.dropout": 0.5}, (0.01, 1e-5)
    cases: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
        "GELU (tanh) < ELU (dropout 0.5)": ("model.activation", units, at),
        "batch_norm true < batch_norm false": ("model.network.batch_norm", (True, False), {}),
        "lr 0.01 < lr 1e-05 (depth 8)": ("model.optimizer.lr", rates, {"block": "depth 8"}),
    }
    for said, (of, sides, where) in cases.items():
        assert (
            ledger._said(ledger.Hypothesis("P0", "none", "lower", "value", of, sides, where))
            == said
        )


def page_of(ledger: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, **paper: Any) -> str:
    """The page of one paper with one claim, over the values in a folder."""
    (folder / "claims.yaml").write_text(
        yaml.safe_dump([{"paper": "A paper", **paper}]), encoding="utf-8"
    )
    monkeypatch.setattr(ledger, "HERE", folder)
    return str(ledger.page())


def test_two_values_of_one_seed_are_rejected(ledger, tmp_path, monkeypatch):
    """As in the first stage of a study, where each seed was run at three learning rates."""
    study, file = "gelu_mnist_silu/choose", "gelu_mnist_silu/choose/values.csv"
    (tmp_path / study).mkdir(parents=True)
    (tmp_path / file).write_bytes((ROOT / "results" / file).read_bytes())
    asked = {"study": study, "columns": ["val/loss@best"], "lower": [["gelu", "silu"]]}
    claim = {"id": "P1", "section": 1, "claim": "Lower.", "hypotheses": [asked]}
    with pytest.raises(
        SystemExit, match=rf"^results/{file}: model.activation gelu has 3 values of seed 0,"
    ) as found:
        page_of(ledger, tmp_path, monkeypatch, judged={}, claims=[claim])
    assert "\n" not in str(found.value)


def test_a_family_of_another_size_needs_a_new_date(ledger, tmp_path, monkeypatch):
    claim = {
        "id": "P1",
        "section": 1,
        "claim": "Lower.",
        "shown": ["tests/test_claims.py::test_it"],
    }
    with pytest.raises(
        SystemExit, match="0 hypotheses have a p-value, and 'judged' says 2 on 2026-01-02; give"
    ):
        page_of(
            ledger,
            tmp_path,
            monkeypatch,
            judged={"date": "2026-01-02", "hypotheses": 2},
            claims=[claim],
        )


def test_the_note_on_the_last_epoch_has_its_p(ledger):
    runs = ledger.values_of("gelu_mnist_classifier").query("`model.network.dropout` == 0")
    of = runs.pivot(index="seed", columns="model.activation", values="train/clean_loss@last")
    p = ledger.paired_difference(of["gelu_tanh"], of["relu"]).p
    (claim,) = (claim for claim in CLAIMS if claim["id"] == "P4")
    assert f"(p = {p:.2f} alone)" in claim["note"]


def test_e14_permutes_within_activations(ledger):
    """The mean rank correlation within activations; pooled runs of three are no 45 clusters."""
    runs = ledger.values_of("claim_layers")
    source = np.random.default_rng(0)
    means, pooled, ps = [], [], []
    for at in ("1", "last"):
        for layer in (2, 5, 8):
            pair = [f"gradients/{name}[layer={layer}]@{at}" for name in ("correlation", "shift")]
            pooled.append(spearmanr(*(runs[name] for name in pair)).statistic)
            within_each, permuted = [], []
            for _, of in runs.groupby("model.activation"):
                first, second = (rankdata(of[name]) for name in pair)
                orders = source.random((20_000, len(of))).argsort(1)
                within_each.append(np.corrcoef(first, second)[0, 1])
                first = (first - first.mean()) / first.std()
                second = (second - second.mean()) / second.std()
                permuted.append(second[orders] @ first / len(of))
            means.append(np.mean(within_each))
            drawn = np.abs(np.mean(permuted, axis=0))
            ps.append((1 + (drawn >= abs(means[-1]) - 1e-12).sum()) / 20_001)

    # The verdict follows the rule, and the texts have the numbers
    corrected = [p for p in holm(ps) if p is not None]
    (claim,) = (claim for claim in CLAIMS if claim["id"] == "E14")
    assert claim["measured"] == "open"
    assert min(corrected) > 0.05
    note = (
        f"within an activation of {min(means):.2f} to {max(means):.2f} (p at least "
        f"{min(ps):.3f} alone, {min(corrected):.3f} after Holm over six). Over all 45 runs they "
        f"are {min(pooled):.2f} to {max(pooled):.2f},"
    )
    assert note in claim["note"]
    page = " ".join((RESULTS / "claim_layers/README.md").read_text(encoding="utf-8").split())
    for numbers, words in (
        (means[:3], "the two is {:.2f}, {:.2f} and {:.2f} in layers 2, 5 and 8 after epoch 1"),
        (means[3:], "After epoch 2 it is {:.2f}, {:.2f} and {:.2f}."),
        (pooled[:3], "the rank correlation is {:.2f}, {:.2f} and {:.2f} after epoch 1"),
        (pooled[3:], "{:.2f}, {:.2f} and {:.2f} after epoch 2. These"),
    ):
        assert words.format(*numbers) in page
    assert f"{min(ps):.3f} alone, and {min(corrected):.3f} after Holm" in page


def test_the_factor_of_p14_is_a_geometric_mean(ledger):
    runs = ledger.values_of("claim_residual_gradients")
    (claim,) = (claim for claim in CLAIMS if claim["id"] == "P14")
    ratios = []
    for column in ("blocks/ratio@0", "blocks/ratio@last"):
        sides = runs.pivot(index="seed", columns="model.network.block", values=column)
        ratios.append(sides["paper_without_norm"] / sides["paper"])
    before, after = (np.exp(np.log(ratio).mean()) for ratio in ratios)
    assert (
        f"is {before:.0f} times the ratio with it before training (geometric mean, "
        f"{ratios[0].min():.0f} to {ratios[0].max():.0f}), and {round(after, -4):,.0f} times after"
    ) in claim["note"]


def test_p25_has_the_distances_before_and_after_training(ledger):
    """Before training batch norm changes nothing: its running mean is 0 and its variance 1."""
    runs = ledger.values_of("claim_net_inputs")
    (claim,) = (claim for claim in CLAIMS if claim["id"] == "P25")
    without, with_it = (runs[runs["model.network.batch_norm"] == norm] for norm in (False, True))
    start, *later = (
        [f"inputs/distance_of_units[layer={layer}]@{at}" for layer in (2, 5, 8)]
        for at in (0, 1, "last")
    )
    places = [*later[0], *later[1]]
    before = without[start].median()
    after = with_it[places].median()
    lowest = min(before.min(), without[places].median().min())
    assert f"the distance is {lowest:.2f} to {before.max():.2f} in all places" in claim["note"]
    assert f"it is {before.min():.2f} to {before.max():.2f} before training" in claim["note"]
    assert f"and {after.min():.3f} to {after.max():.3f} after epochs 1 and 2" in claim["note"]


def test_the_front_page_counts_the_verdicts(ledger):
    papers = yaml.safe_load((ROOT / "results/claims.yaml").read_text(encoding="utf-8"))
    found: Counter[str] = Counter()
    for paper in papers:
        found += Counter(ledger.Family(paper).verdicts.values())
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    holds = found["holds by mathematics"] + found["holds by runs"]
    assert (
        f"{found.total()} testable [claims](results/claims.md), {holds} hold, {found['fails']} "
        f"fail, {found['open']} are open, {found['no verdict']} gets no verdict and "
        f"{found['not run']} were not run"
    ) in text


def test_the_area_under_noise_is_that_of_the_trapezoids(ledger):
    """Of one run, from its folder in the archive: 13 strengths, a quarter apart."""
    runs = ledger.areas_of("gelu_mnist_noise", "error")
    assert runs["area"].notna().all()
    one = runs.iloc[7]
    with tarfile.open(ROOT / "results/gelu_mnist_noise/runs.tar.xz") as archive:
        folder = f"gelu_mnist_noise/{one['run']}/probes/noise-"
        (name,) = (name for name in archive.getnames() if name.startswith(folder))
        content = archive.extractfile(name)
        assert content
        rows = pd.read_parquet(io.BytesIO(content.read()))
    errors = rows.set_index(["metric", "condition"])["value"]
    inner = sum(errors["error", f"noise={n / 4:g}"] for n in range(1, 12))
    ends = errors["error", "noise=0"] + errors["error", "noise=3"]
    assert one["area"] == pytest.approx((inner + ends / 2) / 4)
