"""``actlab fit | validate | test | predict``: LightningCLI with this project's links and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytorch_lightning as pl
import yaml
from pytorch_lightning.cli import SaveConfigCallback

from actlab.experiments import ActlabCLI, one_line_errors, without_denormals
from actlab.resources import config_file


class RecordConfig(SaveConfigCallback):
    """Keep the resolved config beside the run's checkpoints and log it, nested, to the logger.

    A later run in the same folder with another config writes ``config-1.yaml`` and so on: none is replaced.
    """

    def save_config(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the file and hand the values to the logger."""
        text = self.parser.dump(self.config, skip_none=False)
        if stage == "fit":
            keep_version(Path(trainer.default_root_dir) / "config.yaml", text)
        if trainer.logger is not None:
            trainer.logger.log_hyperparams(yaml.safe_load(text))


def keep_version(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, or to ``name-1``, ``name-2`` … where an earlier text differs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate, number = path, 0
    while candidate.exists() and candidate.read_text(encoding="utf-8") != text:
        number += 1
        candidate = path.with_stem(f"{path.stem}-{number}")
    candidate.write_text(text, encoding="utf-8")


def main(args: Sequence[str]) -> None:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; a config may be named without its path.

    Raises:
        ActlabError: for bad input of any kind.
    """
    with one_line_errors(), without_denormals():
        ActlabCLI(_with_config_paths(args), run=True, record=RecordConfig)


def _with_config_paths(args: Sequence[str]) -> list[str]:
    """The arguments with bare config names turned into paths."""
    resolved = list(args)
    for index, argument in enumerate(args):
        if index and args[index - 1] in ("-c", "--config"):
            resolved[index] = str(config_file(argument))
        elif argument.startswith("--config="):
            resolved[index] = f"--config={config_file(argument.removeprefix('--config='))}"
    return resolved
