"""Run a study in a process that has used torch's threads before, as a notebook has.

``python flushed_notebook.py FOLDER abort|finish`` prints the numbers of denormal elements seen in
training.
"""

import contextlib
import sys
from pathlib import Path

import torch
from counted_denormals import denormal  # type: ignore[import-not-found]

import actlab

FOLDER, END = Path(sys.argv[1]), sys.argv[2]
SETTINGS = {
    **{"trainer.max_epochs": 3, "trainer.limit_train_batches": 2},
    **{"model.activation": "relu", "model.network.hidden": [4]},
}


class AbortedError(BaseException):
    """Stands for a kernel that is restarted."""


def note(*_: object) -> None:
    seen.add(denormal())
    if END == "abort" and any(FOLDER.rglob("last.ckpt")):
        raise AbortedError


denormal()  # starts torch's threads
seen: set[int] = set()
torch.nn.modules.module.register_module_forward_hook(note)
with contextlib.suppress(AbortedError):
    actlab.run_study("demo", runs_dir=FOLDER, seeds=2, reference="relu", settings=SETTINGS, jobs=0)
print("seen", *sorted(seen), "after", denormal())
