"""``actlab fit | validate | test | predict``: LightningCLI with this project's links and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from pytorch_lightning.cli import SaveConfigCallback

from actlab import configs, words
from actlab.errors import ActlabError
from actlab.experiments import ActlabCLI, one_line_errors, without_denormals


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
    command, *rest = args
    options = words.options_of(rest)
    given: dict[str, Any] = {} if any(o.asks_help for o in options) else words.nested(options, command)
    if not any(o.asks for o in options) or configs.SECTIONS.keys() <= given.keys():
        configs.check(given, command)
        check_checkpoint(given.get("ckpt_path"))
    with one_line_errors(given), without_denormals():
        ActlabCLI([command, *words.joined(options)], given, run=True, record=RecordConfig)


def check_checkpoint(path: str | None) -> None:
    """Check that a checkpoint exists where a path is given.

    Args:
        path: a path; Lightning's words, such as ``last``, and addresses elsewhere are left to it.

    Raises:
        ActlabError: where there is no such file or folder.
    """
    if path is None or path in ("best", "last", "hpc") or path.startswith("registry") or "://" in path:
        return
    if not Path(path).exists():
        raise ActlabError(f"there is no checkpoint {path!r}: give its path, or last, or best")
