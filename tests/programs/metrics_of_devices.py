"""Validate an untrained task on one or two devices, and write its metrics: ``python FILE JSON``."""

import json
import sys
from pathlib import Path

import torch

from actlab.experiments import build


def write(text):
    asked = json.loads(text)
    trainer, task, data = build(asked["config"])
    (found,) = trainer.validate(task, datamodule=data, verbose=False)
    if trainer.is_global_zero:
        kept = {name: value for name, value in found.items() if name in ("val/f1", "val/auroc")}
        matrix = torch.tensor(task.matrices["val/confusion"][0], dtype=torch.float64)
        shares = {f"share {k}": value for k, value in enumerate((matrix / matrix.sum()).flatten().tolist())}
        Path(asked["path"]).write_text(json.dumps({**kept, **shares}))


if __name__ == "__main__":
    write(sys.argv[1])
