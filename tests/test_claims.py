"""The page of the papers' claims: every claim once, each verdict recomputed, what it points to is there."""

import ast
import importlib.util
import io
import itertools
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import ttest_1samp

ROOT = Path(__file__).parent.parent
CLAIMS: list[Mapping[str, Any]] = [
    claim
    for family in yaml.safe_load((ROOT / "results/claims.yaml").read_text(encoding="utf-8"))
    for claim in family["claims"]
]
NUMBER = re.compile(r"(?<![\w.])−?\d+(?:\.\d+)?(?:e[−-]\d+)?(?![\w.])")
SIGNS = np.array(list(itertools.product((1.0, -1.0), repeat=10)))


@pytest.fixture(scope="module")
def ledger() -> Any:
    """The program that writes the page."""
    spec = importlib.util.spec_from_file_location("claims", ROOT / "results/claims.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_claim_is_listed_once() -> None:
    expected = [f"P{n}" for n in range(1, 29)] + [f"E{n}" for n in range(1, 23)]
    assert sorted(claim["id"] for claim in CLAIMS) == sorted(expected)


def test_the_page_is_what_the_runs_give(ledger: Any) -> None:
    """Numbers agree to their third digit, which another processor may round the other way."""
    kept, written = (ROOT / "results/claims.md").read_text(encoding="utf-8"), ledger.page()
    texts = [NUMBER.sub("#", text) for text in (kept, written)]
    assert texts[0] == texts[1], "run: python results/claims.py"
    first, second = (
        [float(word.replace("−", "-")) for word in NUMBER.findall(text)] for text in (kept, written)
    )
    np.testing.assert_allclose(first, second, rtol=0.02)


def test_tests_and_studies_of_the_claims_exist() -> None:
    for claim in CLAIMS:
        assert {"shown", "hypotheses", "note", "command", "planned"} & set(claim), claim["id"]
        for place in claim.get("shown", ()):
            path, _, name = place.partition("::")
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, place
        assert "measured" not in claim or "benchmarks" in claim["note"], claim["id"]
        studies = [entry["study"] for entry in claim.get("hypotheses", ())]
        for study in [*studies, *filter(None, [claim.get("command")])]:
            assert (ROOT / f"configs/studies/{study}.yaml").exists(), study


def judged(ledger: Any, kind: str, differences: Any, margin: float = 0.0) -> Any:
    """A hypothesis about ten pairs with the given differences."""
    asked = ledger.Hypothesis("P0", "none", kind, "value", "unit", ("a", "b"), {})
    return ledger._judged(asked, {"margin": margin}, (5.0 + np.asarray(differences)).tolist(), [5.0] * 10)


def two_sided(differences: Any) -> float:
    sums = SIGNS @ differences
    return float((abs(sums) >= abs(differences.sum()) - 1e-9).mean())


def one_sided(differences: Any) -> float:
    return float((SIGNS @ differences <= differences.sum() + 1e-9).mean())


@pytest.mark.parametrize("mean", [-1.5, -0.2, 0.0, 0.3, 2.0])
def test_p_values_are_those_of_all_sign_patterns(ledger: Any, mean: float) -> None:
    d = mean + 0.7 * np.random.default_rng(1).standard_normal(10)
    d += mean - d.mean()
    assert judged(ledger, "lower", d).p == pytest.approx(two_sided(d))
    assert judged(ledger, "not_worse", d, 0.5).p == pytest.approx(two_sided(d - 0.5))
    equal = judged(ledger, "equal", d, 0.5)
    if abs(mean) < 0.5:
        assert equal.p == pytest.approx(max(one_sided(d - 0.5), one_sided(-d - 0.5)))
    else:
        assert equal.p == pytest.approx(two_sided(d - np.sign(mean) * 0.5))
    # Of the size that the t-test finds, which the sign-flip test approximates.
    assert judged(ledger, "lower", d).p == pytest.approx(ttest_1samp(d, 0).pvalue, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "mean", "verdict"),
    [
        ("lower", -1.0, "holds"),
        ("lower", 0.0, "open"),
        ("lower", 1.0, "fails"),
        ("not_worse", -0.1, "holds"),
        ("not_worse", 0.5, "open"),
        ("not_worse", 1.0, "fails"),
        ("equal", 0.1, "holds"),
        ("equal", 0.5, "open"),
        ("equal", -1.0, "fails"),
    ],
)
def test_verdicts_follow_direction_and_p(ledger: Any, kind: str, mean: float, verdict: str) -> None:
    d = np.linspace(-0.2, 0.2, 10) + mean
    one = judged(ledger, kind, d, 0.0 if kind == "lower" else 0.5)
    assert one._replace(p_holm=one.p).verdict == verdict
    assert one._replace(p_holm=None).verdict == "open"
    assert one._replace(found=None).verdict == "not run"


@pytest.mark.parametrize(
    ("claim", "verdicts", "expected"),
    [
        ({}, ["holds", "holds"], "holds"),
        ({}, ["holds", "open"], "open"),
        ({}, ["holds", "not run"], "open"),
        ({}, ["open", "fails"], "fails"),
        ({}, ["not run"], "not run"),
        ({"planned": 1}, ["holds"], "open"),
        ({"planned": 1}, [], "not run"),
        ({"shown": ["a test"]}, [], "holds"),
        ({"shown": ["a test"]}, ["not run"], "not run"),
        ({"measured": "fails"}, [], "fails"),
    ],
)
def test_a_claim_holds_when_all_its_hypotheses_do(
    ledger: Any, claim: Mapping[str, Any], verdicts: list[str], expected: str
) -> None:
    assert ledger.verdict_on(claim, verdicts) == expected


def test_the_area_under_noise_is_that_of_the_trapezoids(ledger: Any) -> None:
    """Of one run, from its folder in the archive: 13 strengths, a quarter apart."""
    runs = ledger.areas_of("gelu_mnist_noise", "error")
    assert runs["area"].notna().all()
    one = runs.iloc[7]
    with tarfile.open(ROOT / "results/gelu_mnist_noise/runs.tar.xz") as archive:
        content = archive.extractfile(f"gelu_mnist_noise/{one['run']}/probes/noise.parquet")
        assert content
        rows = pd.read_parquet(io.BytesIO(content.read()))
    errors = rows.set_index(["metric", "condition"])["value"]
    inner = sum(errors["error", f"noise={n / 4:g}"] for n in range(1, 12))
    ends = errors["error", "noise=0"] + errors["error", "noise=3"]
    assert one["area"] == pytest.approx((inner + ends / 2) / 4)
