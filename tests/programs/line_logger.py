"""A logger that appends each row, and each checkpoint, to a file of JSON lines."""

import json
import os
import signal
from pathlib import Path

from pytorch_lightning.loggers import Logger


class LineLogger(Logger):
    """Rows are ``[step, metrics]``, checkpoints names; SIGTERM after the checkpoint ``last``."""

    name, version = "lines", 0

    def __init__(self, save_dir: str = ".", last: str | None = None) -> None:
        super().__init__()
        self.path, self.last = Path(save_dir, "lines.jsonl"), last

    def log_metrics(self, metrics, step=None):
        self.write([step, metrics])

    def log_hyperparams(self, *args, **kwargs):
        pass

    def after_save_checkpoint(self, checkpoint_callback):
        kept = checkpoint_callback.best_k_models  # in order; empty without a monitor
        self.write(Path([checkpoint_callback.best_model_path, *kept][-1]).name)

    def write(self, line):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(f"{json.dumps(line)}\n")
        if line == self.last:
            os.kill(os.getpid(), signal.SIGTERM)
