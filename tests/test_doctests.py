"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import torch

import actlab


def test_examples_are_true(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [info.name for info in pkgutil.walk_packages(actlab.__path__, "actlab.")]
    found = {}
    for name in ["actlab", *(name for name in names if not name.endswith("__main__"))]:
        torch.manual_seed(0)
        found[name] = doctest.testmod(importlib.import_module(name))
    assert [name for name, result in found.items() if result.failed] == []
    assert all(found[name].attempted for name in ("actlab.api", "actlab.analysis.statistics"))
