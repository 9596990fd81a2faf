"""``actlab fit | validate | test | predict``: LightningCLI with this project's links and defaults."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import yaml
from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser, SaveConfigCallback

from actlab import checkpoints, configs, records, words
from actlab.errors import ActlabError
from actlab.experiments import ActlabCLI, one_line_errors, without_denormals
from actlab.words import Option

LIGHTNINGS = ("best", "last", "hpc")  # words that stand for a checkpoint


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


class CommandLine(ActlabCLI):
    """The command line: what is asked for must be what the checkpoint holds."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse.

        Raises:
            ActlabError: for a model that is not the checkpoint's.
        """
        super().parse_arguments(parser, args)
        command = str(self.config["subcommand"])
        config = self.config[command]
        if (trained := trained_config(config.get("ckpt_path"))) is not None:
            self._check_model(command, config, trained, config.ckpt_path)

    def _check_model(self, command: str, config: Namespace, trained: Mapping[str, Any], path: str) -> None:
        """Compare the parsed model with a checkpoint's, which is parsed alone to be as complete."""
        given = [name for name in configs.SHAPES if configs.gives(self.given, name)]
        alone = self._parser(command).parse_object(records.without_shapes(trained, given))
        asked, held = (records.record(parsed, {}) for parsed in (config, alone))
        keys = ("model", configs.SEED) if command == "fit" else ("model",)
        for key in keys:
            if found := records.difference(asked[key], held[key], key):
                where, one, other = found
                raise ActlabError(
                    f"{where} is {one!r}, but the checkpoint {path!r} was trained with {other!r}: "
                    + (f"give --{where} {other}" if command == "fit" else f"leave {where}, or -c, out")
                )


def main(args: Sequence[str]) -> None:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; a config may be named without its path.

    Raises:
        ActlabError: for bad input of any kind.
    """
    command, *rest = args
    options = words.options_of(rest)
    path = next((o.value for o in reversed(options) if o.name == "--ckpt_path"), None)
    check_checkpoint(path)
    with checkpoint_config(None if command == "fit" else path) as base:
        run(command, [*base, *options])


def run(command: str, options: Sequence[Option]) -> None:
    """Run a command with its options, or answer what they ask for."""
    given: dict[str, Any] = {} if any(o.asks_help for o in options) else words.nested(options, command)
    if not any(o.asks for o in options) or configs.SECTIONS.keys() <= given.keys():
        check_checkpoint(given.get("ckpt_path"))
        if given.get("model") is None and given.get("ckpt_path") is not None:
            raise ActlabError(
                f"the checkpoint {given['ckpt_path']!r} holds no config of what was trained: "
                "give one with -c FILE"
            )
        configs.check(given, command)
    quiet = {} if command == "fit" else {"logger": False}
    with one_line_errors(given), without_denormals(), warnings.catch_warnings():
        if command != "fit":  # what callbacks remember of the training counts for nothing
            warnings.filterwarnings("ignore", ".*callbacks used to create the checkpoint")
        CommandLine([command, *words.joined(options)], given, run=True, record=RecordConfig, **quiet)


@contextmanager
def checkpoint_config(path: str | None) -> Iterator[list[Option]]:
    """What a checkpoint says was trained, as an option to set others over; no option if it says nothing."""
    config = trained_config(path)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        yield [] if config is None else [Option("--config", str(file))]


def trained_config(path: str | None) -> Mapping[str, Any] | None:
    """What a checkpoint says was trained; None where it does not, or where there is no path."""
    found = checkpoints.read(path) if path is not None and path not in LIGHTNINGS else {}
    return found.get(checkpoints.CONFIG)


def check_checkpoint(path: str | None) -> None:
    """Check that a checkpoint is a local file; Lightning's words, such as ``last``, are left to it.

    Raises:
        ActlabError: where there is no such file, or it lies elsewhere.
    """
    if path is None or path in LIGHTNINGS:
        return
    if "://" in path or path.startswith("registry"):
        raise ActlabError(f"the checkpoint {path!r} is not on this computer: download it and give its path")
    if Path(path).is_dir():
        raise ActlabError(f"{path!r} is a folder: give a file, such as {Path(path, 'checkpoints/last.ckpt')}")
    if not Path(path).exists():
        raise ActlabError(f"there is no checkpoint {path!r}: give its path, or last, or best")
