"""A callback that notes which process trains what."""

import os
import socket
from pathlib import Path

import pytorch_lightning as pl


class Witness(pl.Callback):
    """Appends a line to ``witness.txt`` for each epoch: host, process, folder, epoch."""

    stackable = True

    def on_train_epoch_end(self, trainer, pl_module):
        folder = Path(trainer.default_root_dir).name
        line = f"{socket.gethostname()} {os.getpid()} {folder} {trainer.current_epoch}\n"
        with Path(__file__).with_name("witness.txt").open("a", encoding="utf-8") as file:
            file.write(line)
