"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import actlab

MODULES = [
    "actlab",
    *(
        info.name
        for info in pkgutil.walk_packages(actlab.__path__, "actlab.")
        if not info.name.endswith("__main__")
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_there_are_examples():
    found = [importlib.import_module(name) for name in ("actlab.api", "actlab.analysis.statistics")]
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert all(any(test.examples for test in finder.find(module)) for module in found)
