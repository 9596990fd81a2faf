"""Prints the types of two limits of batches; Rich's progress bars are imported before Lightning."""

import rich.progress  # noqa: F401

from actlab import experiments
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file

config = read_mapping(config_file("mnist_classifier"))
config["data"]["init_args"]["sample"] = True
config["trainer"] |= {"limit_train_batches": 1, "limit_val_batches": 1.0, "val_check_interval": 1}
trainer = experiments.build(config).trainer
print([type(getattr(trainer, name)).__name__ for name in ("limit_train_batches", "limit_val_batches")])
