"""The benchmarks use actlab as it is: what they name exists. `make bench` runs them."""

import ast
import importlib
import json
import runpy
from pathlib import Path

import pytest

ORDINARY = ("normal", "unequal spread", "skewed", "errors of 1,000", "errors of 10,000", "kept runs")
BENCHMARKS = sorted((Path(__file__).parent.parent / "benchmarks").glob("*.py"))


def test_there_are_benchmarks():
    assert len(BENCHMARKS) > 5


@pytest.mark.parametrize("path", BENCHMARKS, ids=[path.stem for path in BENCHMARKS])
def test_what_a_benchmark_names_exists(path):
    tree = ast.parse(path.read_text())
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("actlab"):
            for name in node.names:
                found[name.asname or name.name] = attribute(importlib.import_module(node.module), name.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in found:
            attribute(found[node.value.id], node.attr)


def attribute(owner, name):
    """A name of a module, which may be a module in it; of anything else it may be set later."""
    if hasattr(owner, "__path__") and not hasattr(owner, name):
        return importlib.import_module(f"{owner.__name__}.{name}")
    return getattr(owner, name) if hasattr(owner, "__file__") else getattr(owner, name, None)


def test_the_page_has_the_simulated_verdicts():
    root = Path(__file__).parent.parent
    simulated = json.loads((root / "benchmarks/verdicts.json").read_text())
    tables = runpy.run_path(str(root / "benchmarks/verdicts.py"))["tables"]
    page = (root / "docs/concepts/verdicts.md").read_text()
    assert tables(simulated) in page, "run: python benchmarks/verdicts.py, and paste its tables"
    ordinary = [name for name in simulated if name.partition(":")[0] in ORDINARY]
    assert len(ordinary) == 6 * 4
    assert max(simulated[name][test] for name in ordinary for test in ("mean", "probability")) <= 0.065
    intervals = ("covers", "covers probability")
    assert min(simulated[name][interval] for name in ordinary for interval in intervals) >= 0.93
