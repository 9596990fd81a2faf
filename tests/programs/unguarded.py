"""Trains a study without a ``__main__`` guard: ``python unguarded.py FOLDER [ACTIVATION]``."""

import sys

import actlab

print("begins")
SETTINGS = {"trainer.max_epochs": 1, "model.activation": "relu", "trainer.limit_train_batches": 1}
found = actlab.run_study(
    "demo",
    runs_dir=sys.argv[1],
    seeds=1,
    reference="relu",
    settings=SETTINGS,
    activations=sys.argv[2:],
    jobs=1,
)
print(found.failed, len(found.values), "torch" in sys.modules)
