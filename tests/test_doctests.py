"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil
from importlib.util import find_spec

import pytest

import actlab.activations
import actlab.analysis

PACKAGES = (actlab.activations, actlab.analysis)
NEEDS = {"actlab.activations.kernels": "triton"}  # is installed beside CUDA builds of torch only


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_examples_are_true(package):
    names = [info.name for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = [importlib.import_module(name) for name in names if find_spec(NEEDS.get(name, "doctest"))]
    results = {module.__name__: doctest.testmod(module) for module in modules}
    assert {name: result for name, result in results.items() if result.failed} == {}
    assert sum(result.attempted for result in results.values()) > 10
