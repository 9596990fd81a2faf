"""Prints the types of three limits of batches, after unions with float first."""

import typing

FIRST = typing.Optional[typing.Union[float, int]]  # noqa: UP007, UP045

from actlab import experiments  # noqa: E402
from actlab.storage.mappings import read_mapping  # noqa: E402
from actlab.storage.resources import config_file  # noqa: E402

config = read_mapping(config_file("cifar10_convnet"))
config["data"]["init_args"]["sample"] = True
config["trainer"] |= {"limit_train_batches": 1, "limit_val_batches": 1.0, "val_check_interval": 1}
trainer = experiments.build(config).trainer
names = ("limit_train_batches", "limit_val_batches", "val_check_interval")
print([type(getattr(trainer, name)).__name__ for name in names])
