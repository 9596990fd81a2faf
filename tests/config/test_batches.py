"""One batch is one batch: whatever Python was asked to import before Lightning."""

import subprocess
import sys

import pytest

from actlab import experiments
from actlab.config.parsing import section
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file


def test_a_whole_number_of_batches_stays_one_where_the_parser_makes_it_a_float(monkeypatch):
    """As it does where Rich was imported first."""
    limits = {"limit_train_batches": 1, "limit_val_batches": 1.0}
    parsed = dict.fromkeys(limits, 1.0)
    monkeypatch.setattr("actlab.experiments.section", lambda name, given: section(name, {**given, **parsed}))
    config = read_mapping(config_file("mnist_classifier"))
    config["trainer"] |= limits
    trainer = experiments.resolved(config, {}).trainer
    assert [type(trainer[name]) for name in limits] == [int, float]


@pytest.mark.slow  # seven seconds of imports
def test_a_whole_number_of_batches_stays_one_after_an_import_of_rich(programs):
    words = [sys.executable, programs / "batches_of_a_config.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("['int', 'float']"), done.stderr
