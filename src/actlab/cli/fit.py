"""``actlab fit | validate | test | predict``: the options, the checkpoint and the config."""

from __future__ import annotations

import logging
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import SaveConfigCallback

from actlab.cli import arguments
from actlab.cli.arguments import Option, Words, value_of
from actlab.cli.fit_command import CommandLine
from actlab.cli.fit_folders import LIGHTNING_WORDS, checkpoint_at
from actlab.config import sections
from actlab.config.admission import admitted
from actlab.config.class_paths import class_of
from actlab.config.messages import one_line_errors
from actlab.errors import ActlabError
from actlab.runtime import devices, matmul
from actlab.runtime.denormals import flush_denormals
from actlab.storage import checkpoints
from actlab.storage.contents import texts
from actlab.storage.files import regular
from actlab.storage.mappings import parse

TRUST = "--trust"  # a checkpoint may name any class, and files with activations
SKIP_NULL = ("skip_null", "skip_unset")  # values of --print_config, as in LightningCLI
# Callbacks of Lightning that change the training.
CHANGING = {
    "EarlyStopping",
    "StochasticWeightAveraging",
    "WeightAveraging",
    "EMAWeightAveraging",
}
# Options that the parser of LightningCLI does not have.
_OF_PROCESS = ("--ckpt_path", "--products", "--graphs")


class RecordConfig(SaveConfigCallback):
    """Write the resolved config of a fit to the run's folder, and log it as nested values."""

    def __init__(self, parser: Any, config: Any, text: str, **kwargs: Any) -> None:
        # Without the parser, which spawned processes cannot unpickle.
        super().__init__(None, None, **kwargs)  # type: ignore[arg-type]
        self.text = text

    def save_config(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str
    ) -> None:
        """Write the config file and log the hyperparameters."""
        if stage == "fit":
            # A later run in the same folder with another config writes `config-1.yaml`
            # and so on.
            path = Path(trainer.default_root_dir, "config.yaml")
            number = 0
            while (
                path.exists() and regular(path).read_text(encoding="utf-8") != self.text
            ):
                number += 1
                path = path.with_stem(f"config-{number}")
            path.write_text(self.text, encoding="utf-8")

        # Loggers show the config next to the curves
        for logger in trainer.loggers:
            logger.log_hyperparams(parse(self.text))


def main(args: Sequence[str]) -> None:
    """Run ``fit``, ``validate``, ``test`` or ``predict``, the first of the words."""
    # Split the words into options
    command, *typed_words = args
    trusts = TRUST in typed_words
    options = arguments.options_of([word for word in typed_words if word != TRUST])
    _set_up_process(options)
    if any(option.asks_help for option in options):
        _print_help(options, command)
    print_form = _print_form(options)
    checkpoint_paths = _values(options, "--ckpt_path")
    config_files = [Path(value) for value in _values(options, "--config")]
    options = [option for option in options if option.name not in _OF_PROCESS]

    # Take the config from the checkpoint if no file is named
    path = checked_path(checkpoint_paths[-1]) if checkpoint_paths else None
    contents: Mapping[str, Any] = {}
    if not config_files:
        contents = checkpoint_at(path)
    base = None
    trained = contents.get(checkpoints.CONFIG)
    if trained is not None:
        remedy = shlex.join(["actlab", *args, TRUST])
        base = admitted(trained, remedy, trusts, _texts(options))

    # Merge config files and options
    words = Words(options, command, base)
    if not checkpoint_paths:
        path = checked_path(words.checkpoint)
    if words.config.get("model") is None and path is not None:
        raise ActlabError(f"the checkpoint {path!r} has no config. Add -c CONFIG.")
    sections.check(words.config, command)

    # Name the run after its config, and repeat its options in the next command
    names = [file.stem for file in config_files if not file.is_fifo()]
    name = names[0] if names else None
    typed_options = [option.typed for option in options]
    if trusts:
        typed_options.append(TRUST)
    typed = " ".join(typed_options)

    # Run the command
    flush_denormals()
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_is_no_advert)
    continues = command == "fit" and base is not None
    with one_line_errors(words.config), warnings.catch_warnings():
        _ignore_warnings(of_callbacks=command != "fit" or continues)
        # Set what the Trainer gets unless the config says more
        defaults: dict[str, Any] = {}
        if continues:
            defaults = continued(str(path), contents)
        elif command != "fit":
            defaults = {"logger": False}
        experiment = CommandLine(
            command,
            words,
            RecordConfig,
            name,
            path,
            contents,
            print_form,
            typed,
            **defaults,
        )
        experiment.run()


def _values(options: Sequence[Option], name: str) -> list[str]:
    """Return the values of all options of a name, empty for an option without value."""
    return [option.value or "" for option in options if option.name == name]


def _set_up_process(options: Sequence[Option]) -> None:
    """Set the float32 matmul backend and CUDA graphs, which are no part of a config."""
    for backend in _values(options, "--products"):
        if backend == matmul.AUTO:
            backend = matmul.for_mlps()
        print(f"float32 matmul backend on the CPU: {matmul.use(backend)}")
    for answer in _values(options, "--graphs"):
        if answer not in ("true", "false"):
            raise ActlabError(f"--graphs: expected true or false, got {answer!r}.")
        devices.graphs = answer == "true"


def _print_help(options: Sequence[Option], command: str) -> None:
    """Print the help that the options ask for, and exit."""
    words = Words([], command)
    words.words += _help_words(options, command)
    for package in sections.PACKAGES.values():
        import_module(package)  # a bare name is the name of an imported class
    with one_line_errors():
        CommandLine(command, words, RecordConfig)


def _help_words(options: Sequence[Option], command: str) -> list[str]:
    """Return the words for which LightningCLI prints help, with the class of the config."""
    # The other options decide which classes the help describes
    settings = [option for option in options if not option.asks_help]
    words = []
    for option in options:
        if not option.asks_help:
            continue
        section = option.name.removeprefix("--").removesuffix(".help")
        # Help of the Trainer, or of a class that is named, needs no config
        if section not in sections.SECTIONS or option.value is not None:
            words.append(option.word)
            continue

        # Find the class of the config
        config = Words(settings, command).config
        kind = class_of(config.get(section))
        if kind is None:
            raise ActlabError(
                f"{option.name}: expected a class, got none. Add -c CONFIG, or pass "
                f"--{section}.help CLASS."
            )
        words.append(f"{option.name}={kind}")
    return words


def _print_form(options: Sequence[Option]) -> str | None:
    """Return the value of ``--print_config``, empty without value; None without the option."""
    forms = _values(options, arguments.PRINT)
    if not forms:
        return None

    # A repeated option is printed once, in the first form
    form = forms[0]
    if form not in ("", *SKIP_NULL):
        allowed = " or ".join(SKIP_NULL)
        raise ActlabError(
            f"{arguments.PRINT}: expected no value or {allowed}, got {form!r}."
        )
    return form


def checked_path(path: str | None) -> str | None:
    """Return the path of a checkpoint that is a local file, a word such as ``last``, or None."""
    # YAML's null means none
    if path is None or path == "null":
        return None
    # Lightning finds these files itself
    if path in LIGHTNING_WORDS:
        return path
    if not Path(str(path)).is_file():
        raise ActlabError(
            f"--ckpt_path: expected last, best or a file on this computer, got {path!r}."
        )
    return str(path)


def _texts(options: Sequence[Option]) -> list[str]:
    """Return all texts in the values of options, which a checkpoint may name too."""
    stated: list[str] = []
    for option in options:
        value = value_of(option.value, {}, option.name)
        stated.extend(texts(value))
    return stated


def _ignore_warnings(of_callbacks: bool) -> None:
    """Ignore warnings of Lightning that say nothing here."""
    warnings.filterwarnings(
        "ignore",
        "The number of training batches .* is smaller than the logging interval",
    )
    if of_callbacks:  # callback states of training are irrelevant here
        warnings.filterwarnings("ignore", ".*callbacks used to create the checkpoint")


def continued(checkpoint: str, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the Trainer for a fit that continues from a record.

    It only keeps its last epoch.
    """
    # A record of a checkpoint names no callbacks, so those that change training are
    # missing
    callbacks = contents.get("callbacks") or ()
    kinds = {str(key).partition("{")[0] for key in callbacks}
    omitted = sorted(kinds & CHANGING)
    if omitted:
        print(
            f"note: the checkpoint was trained with {', '.join(omitted)}, which this fit omits. To "
            f"keep it, run `actlab fit -c CONFIG --ckpt_path {checkpoint}`.",
            file=sys.stderr,
        )

    # Without a config nothing says which epoch is best
    last = ModelCheckpoint(filename="last", save_on_train_epoch_end=True)
    return {"logger": False, "callbacks": [last]}


def _is_no_advert(record: logging.LogRecord) -> bool:
    """Hide Lightning's tips for other products, and its line about absent TPUs."""
    return not record.getMessage().startswith(("💡", "TPU available: False"))
