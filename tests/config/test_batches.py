"""One batch is one batch: whatever Python was asked to import before Lightning."""

import subprocess
import sys

PROGRAM = """
import rich.progress
from actlab import experiments
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file

config = read_mapping(config_file("mnist_classifier"))
config["data"]["init_args"]["sample"] = True
config["trainer"] |= {"limit_train_batches": 1, "limit_val_batches": 1.0, "val_check_interval": 1}
trainer = experiments.build(config).trainer
print([type(getattr(trainer, name)).__name__ for name in ("limit_train_batches", "limit_val_batches")])
"""


def test_a_whole_number_of_batches_stays_one():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("['int', 'float']"), done.stderr
