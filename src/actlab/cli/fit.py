"""``actlab fit | validate | test | predict``: LightningCLI with this project's links and defaults."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from filelock import FileLock, Timeout
from jsonargparse import Namespace
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from actlab import activations
from actlab.callbacks import BestSoFar
from actlab.cli import arguments, fit_folders
from actlab.cli.arguments import Option
from actlab.cli.predictions import PredictionTable
from actlab.config import records, sections
from actlab.config.messages import one_line_errors
from actlab.config.signatures import locate, parameters
from actlab.errors import ActlabError
from actlab.experiments import ANY_CLASSES, ActlabCLI, resolved, without_denormals
from actlab.runtime import matmul
from actlab.storage import checkpoints
from actlab.storage.files import forget_id, id_in, regular
from actlab.storage.resources import is_pipe

LIGHTNINGS = ("best", "last", "hpc")  # words that stand for a checkpoint


class RecordConfig(SaveConfigCallback):
    """Keep the resolved config beside the run's checkpoints and log it, nested, to the logger.

    A later run in the same folder with another config writes ``config-1.yaml`` and so on: none is replaced. A
    folder is locked while a fit writes into it.
    """

    def __init__(self, *args: Any, text: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text = text  # the config before the run's folder was put into it
        self.lock: FileLock | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Lock the folder, then record.

        Raises:
            ActlabError: where another process trains in the folder.
        """
        if stage == "fit" and trainer.is_global_zero:
            folder = Path(trainer.default_root_dir)
            folder.mkdir(parents=True, exist_ok=True)
            self.lock = FileLock(folder / ".lock", timeout=0)
            try:
                self.lock.acquire()
            except Timeout:
                raise ActlabError(
                    f"another process trains in {str(folder)!r}: wait for its end, or give another "
                    "--trainer.default_root_dir"
                ) from None
        super().setup(trainer, pl_module, stage)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Unlock the folder."""
        if self.lock is not None:
            self.lock.release()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Unlock the folder."""
        self.teardown(trainer, pl_module, "fit")

    def save_config(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the file and hand the values to the logger."""
        if stage == "fit":
            keep_version(Path(trainer.default_root_dir) / "config.yaml", self.text)
        if trainer.logger is not None:
            trainer.logger.log_hyperparams(yaml.safe_load(self.text))


def keep_version(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, or to ``name-1``, ``name-2`` … where an earlier text differs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate, number = path, 0
    while candidate.exists() and regular(candidate).read_text(encoding="utf-8") != text:
        number += 1
        candidate = path.with_stem(f"{path.stem}-{number}")
    candidate.write_text(text, encoding="utf-8")


class CommandLine(ActlabCLI):
    """The command line: each run has a folder, and what is asked for must be what the checkpoint holds.

    Args:
        command: what is run, such as ``fit``.
        given: the config, and the arguments of the command.
        name: of the config, under which the runs' folders are, unless ``trainer.default_root_dir`` says where.
        trainer_defaults: Trainer arguments where the config is silent.
    """

    def __init__(
        self, command: str, given: Mapping[str, Any], name: str | None, **trainer_defaults: Any
    ) -> None:
        self.command, self.name = command, name
        self.asked = {key: given[key] for key in sections.arguments_of(command) if key in given}
        self.folder = Path()
        super().__init__(given, record=RecordConfig, **trainer_defaults)

    def run(self) -> None:
        """Run the command."""
        getattr(self.trainer, self.command)(self.model, datamodule=self.datamodule, **self.asked)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse; find the run's folder and its checkpoint.

        Raises:
            ActlabError: for a model that is not the checkpoint's, or a checkpoint that is not there.
        """
        super().parse_arguments(parser, args)
        config, fit, path = self.config, self.command == "fit", self.asked.get("ckpt_path")
        root = config.trainer.default_root_dir or f"runs/{self.name or config.model.class_path.split('.')[-1]}"
        config.trainer.default_root_dir = root
        plain = records.as_given(config, sections.linked_shapes(self.given))
        self.save_config_kwargs["text"] = yaml.safe_dump(plain, sort_keys=False)
        if not fit and path is not None and path not in LIGHTNINGS:
            self.folder = fit_folders.folder_of(Path(path))
        else:
            self.folder = fit_folders.folder_for(Path(root), fit_folders.name_of(plain), path)
        if path in ("last", "best"):
            self.asked["ckpt_path"] = path = str(fit_folders.checkpoint_in(self.folder, path))
        if fit and path is None:
            forget_id(self.folder)  # of a fit that was stopped before its first checkpoint
        set_save_dirs(config.trainer.logger, self.folder, fit)
        if not fit and path is None:
            print("note: without --ckpt_path this is of an untrained network", file=sys.stderr)
        if (trained := trained_config(path)) is not None:
            self._check_model(trained, str(path))

    def _check_model(self, trained: Mapping[str, Any], path: str) -> None:
        """Compare the model with a checkpoint's, which gets its types alone to be as complete."""
        given = [name for name in sections.SHAPES if sections.gives(self.given, name)]
        alone = resolved(records.without_shapes(trained, given), {})
        asked, held = (records.record(config, {}) for config in (self.config, alone))
        fit = self.command == "fit"
        for key in ("model", sections.SEED) if fit else ("model",):
            if found := records.difference(asked[key], held[key], key):
                where, one, other = found
                raise ActlabError(
                    f"{where} is {one!r}, but the checkpoint {path!r} was trained with {other!r}: "
                    + (f"give --{where} {other}" if fit else f"leave {where}, or -c, out")
                )
        for text in (*records.changed_code(trained), *records.changed_files(trained, asked)):
            changed = f"{text} has changed since the checkpoint {path!r} was trained"
            if fit:
                raise ActlabError(f"{changed}: restore it, or leave --ckpt_path out to train from the start")
            print(f"note: {changed}; this is of today's", file=sys.stderr)

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the Trainer; what it writes goes into the run's folder, but where the config names another."""
        trainer = super().instantiate_trainer(default_root_dir=str(self.folder), **kwargs)
        bar, callbacks = trainer.progress_bar_callback, trainer.callbacks  # type: ignore[attr-defined]
        if type(bar) is RichProgressBar:
            callbacks[callbacks.index(bar)] = BestSoFar()
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                callback.dirpath = str(self.folder.resolve() / "checkpoints")
        if self.command == "predict":
            callbacks.append(PredictionTable(self.folder / "predictions.parquet"))
        return trainer


def set_save_dirs(logger: Any, folder: Path, lasting: bool) -> None:
    """Let loggers of a parsed config write into a folder, those whose ``save_dir`` was left as it is.

    Args:
        logger: one, several, or none.
        folder: of the run.
        lasting: give those that take an ``id`` and were given none the folder's, so that a fit that goes on
            does so in its own history.
    """
    for one in logger if isinstance(logger, list) else [logger]:
        arguments = one.get("init_args") if isinstance(one, Namespace) else None
        if arguments is not None and "save_dir" in arguments:
            taken = (parameters(locate(one.class_path)) or {}).get("save_dir")
            if taken is not None and arguments.save_dir in (None, taken.default):
                arguments.save_dir = str(folder)
        if lasting and arguments is not None and arguments.get("id", "") is None:
            arguments.id = id_in(folder)


class Help(LightningCLI):
    """LightningCLI's answer to ``--help`` and ``--model.help CLASS``."""

    def __init__(self, command: str, words: Sequence[str]) -> None:
        self.command = command
        units = f"Activations: {', '.join(activations.names())}; or package.module:Unit, ./file.py:Unit."
        super().__init__(
            **ANY_CLASSES,
            parser_kwargs={"exit_on_error": False, command: {"description": units}},
            args=[command, *words],
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The command that is asked about, without the others: LightningCLI makes a parser for each."""
        return {self.command: super().subcommands()[self.command]}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Say that the seed is given to both sides."""
        for side in sections.SECTIONS:
            parser.link_arguments(sections.SEED, f"{side}.init_args.seed")


def main(args: Sequence[str]) -> None:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; a config may be named without its path.

    Raises:
        ActlabError: for bad input of any kind.
    """
    command, *rest = args
    options = with_route(arguments.options_of(rest))
    if any(option.asks_help for option in options):
        with one_line_errors():
            Help(command, arguments.joined(options))
        return
    path = next((o.value for o in reversed(options) if o.name == "--ckpt_path"), None)
    check_checkpoint(path)
    trained = trained_config(None if command == "fit" else path)
    given = arguments.nested(options, command, None if trained is None else records.as_config(trained))
    if given.get("model") is None and path is not None:
        raise ActlabError(f"the checkpoint {path!r} holds no config of what was trained: give one with -c FILE")
    files = [Path(str(option.value)) for option in options if option.name == "--config"]
    name = next((file.stem for file in files if not is_pipe(file)), None)
    run(command, given, name, only_shown=any(option.asks for option in options))


def with_route(options: Sequence[Option]) -> list[Option]:
    """The options without ``--products ROUTE``, after taking that route of float32 products on the CPU.

    ``default`` is torch's own, ``onednn`` may be faster, and is less exact where the processor has units for
    bfloat16 products; ``auto`` measures both and takes the faster one that is as exact. Without the option
    nothing is changed.

    Raises:
        ActlabError: for another route.
    """
    for route in (str(option.value) for option in options if option.name == "--products"):
        matmul.use(found := matmul.choose() if route == matmul.AUTO else route)
        print(f"float32 products on the CPU: {found}")
    return [option for option in options if option.name != "--products"]


def run(command: str, given: Mapping[str, Any], name: str | None, only_shown: bool = False) -> None:
    """Run a command over a config, or print the config as it would be run.

    Args:
        command: such as ``fit``.
        given: the config, and the arguments of the command.
        name: of the config.
        only_shown: print it, and run nothing.

    Raises:
        ActlabError: for bad input of any kind.
    """
    sections.check(given, command)
    check_checkpoint(given.get("ckpt_path"))
    quiet = {} if command == "fit" else {"logger": False}
    with one_line_errors(given), without_denormals(), warnings.catch_warnings():
        if only_shown:
            shown = records.as_given(resolved(given, quiet), sections.linked_shapes(given))
            print(yaml.safe_dump(shown, sort_keys=False), end="")
            return
        if command != "fit":  # what callbacks remember of the training counts for nothing
            warnings.filterwarnings("ignore", ".*callbacks used to create the checkpoint")
        CommandLine(command, given, name, **quiet).run()


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
