"""The benchmarks use actlab as it is: what they name exists. `make bench` runs them."""

import ast
import importlib
from pathlib import Path

import pytest

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
