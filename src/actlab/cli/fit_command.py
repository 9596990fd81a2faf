"""LightningCLI for one command: the run's folder, its loggers and the check of a checkpoint."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from filelock import FileLock, Timeout
from jsonargparse import Namespace
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, SaveConfigCallback
from pytorch_lightning.utilities.model_helpers import is_overridden

from actlab import activations
from actlab.analysis.wording import few
from actlab.callbacks import BlockProgressBar
from actlab.cli import fit_folders, fit_help
from actlab.cli.arguments import RUN_FOLDER, Words
from actlab.cli.fit_folders import LIGHTNING_WORDS, checkpoint_at
from actlab.config import metric_classes, record, sections
from actlab.config.admission import UntrustedError, admitted
from actlab.config.labels import label
from actlab.config.messages import one_line_errors
from actlab.config.paths import differences, get_dotted
from actlab.config.plain_values import plain
from actlab.config.resolved import complete, run_seed, typed, with_text
from actlab.config.signatures import locate, parameters
from actlab.datamodules.base import TensorDataModule
from actlab.engines.matrices import MatrixFile
from actlab.errors import ActlabError
from actlab.errors.imports import importing
from actlab.experiments import ActlabCLI
from actlab.runtime.signals import explained
from actlab.storage import checkpoints
from actlab.storage.contents import texts
from actlab.storage.logger_ids import ensure_id, forget_id, has_id
from actlab.storage.mappings import written

# Commands that evaluate a fit, with the methods that they require of the model, and of
# the data or the model.
EVALUATIONS = (
    ("test", "test_step", "test_dataloader"),
    ("validate", "validation_step", "val_dataloader"),
)


class CommandLine(ActlabCLI):
    """LightningCLI for one of the commands ``fit``, ``validate``, ``test`` and ``predict``.

    It parses the words, finds the run's folder, compares the config with the record in the
    checkpoint, sets loggers and callbacks, runs the command and prints how a fit ended. It does not
    read config files or options, which `Words` does, nor build task and data, which `ActlabCLI`
    does.

    Args:
        command: one of the four commands.
        words: the words of the command line, the config files and a checkpoint's record.
        recorder: callback that records the resolved config.
        name: name of the config, which the folder of its runs gets.
        checkpoint: path of a checkpoint, ``last`` or ``best``.
        contents: what the checkpoint holds, if it was read.
        print_form: print the resolved config instead of running it; without null values unless the
            text is empty.
        typed: options as typed, without the checkpoint, for the next command that a fit prints.
        **trainer_defaults: arguments of the Trainer for keys that the config does not set.
    """

    def __init__(
        self,
        command: str,
        words: Words,
        recorder: type[SaveConfigCallback],
        name: str | None = None,
        checkpoint: str | None = None,
        contents: Mapping[str, Any] | None = None,
        print_form: str | None = None,
        typed: str = "",
        **trainer_defaults: Any,
    ) -> None:
        # Set first, because super().__init__() already calls this class's hooks
        self.command = command
        self.name = name
        self.print_form = print_form
        self.typed = typed

        # The parser never sees the checkpoint: LightningCLI would merge its
        # hyperparameters over the words.
        self.keywords: dict[str, Any] = {"ckpt_path": checkpoint}
        self.contents = contents  # until the Trainer has them
        self.dropped = words.dropped
        self.folder = Path()
        super().__init__(
            words.config,
            words.words,
            digests={},
            record=recorder,
            any_optimizer=True,
            **trainer_defaults,
        )

    @property
    def stores(self) -> bool:
        """Whether the command writes files of its own; one with ``fast_dev_run`` leaves none."""
        return not self.config.trainer.fast_dev_run

    @property
    def continues(self) -> bool:
        """Whether a fit has no config but the record of its checkpoint."""
        return "callbacks" in self.trainer_defaults

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the seed, which is always a number."""
        parser.add_argument(
            "--seed_everything",
            type=SeedType(),
            default=0,
            help="Seed of initial weights, data order and masks.",
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link seed and shapes, and add the arguments and the help of the command."""
        # The usual options first; jsonargparse lists all of them below
        parser.usage = fit_help.usage(self.command)
        parser.description = fit_help.OPTIONS
        for section in sections.SECTIONS:
            parser.link_arguments(sections.SEED, f"{section}.init_args.seed")
        self.link_shapes(parser)

        # Arguments of the Trainer's method that the command passes itself are no
        # options
        skipped: set[Any] = {*self.subcommands()[self.command], "ckpt_path"}
        parser.add_method_arguments(pl.Trainer, self.command, skip=skipped)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the words; find the run's folder and its checkpoint."""
        # Parse the words, which import the classes of the config
        source = f"actlab {self.command}"
        if self.stated:
            source = "the code of the config"
        with one_line_errors(self.stated):
            # Checked before the parser, which does not name the metric.
            metric_classes.check(self.stated)
            with importing(source):
                self.config = config = parser.parse_args(args)

        # Separate the arguments of the command
        config.pop("config")
        for key in sections.arguments_of(self.command):
            if key in config:
                self.keywords[key] = config.pop(key)

        # Complete the sections
        for section in ("trainer", *sections.SECTIONS):
            values = config[section]
            with_text(self.stated.get(section), values, section, linked=sections.SHAPES)
            if section != "trainer":
                complete(section, values)

        # Print what differs from the config, or the config and nothing else
        self._print_notes()
        if self.print_form is not None:
            self._print_config(self.print_form)
            parser.exit()

        # Find the run's folder and its checkpoint
        name = self.name or config.model.class_path.split(".")[-1]
        root = config.trainer.default_root_dir or f"runs/{name}"
        config.trainer.default_root_dir = root
        plain_config = self.plain_config()
        self.save_config_kwargs["text"] = written(plain_config)
        self._find_folder(Path(root), plain_config)
        if self.stores:
            self._set_up_loggers(Path(root).name, plain_config)
        self._read_checkpoint()

    def _print_notes(self) -> None:
        """Say which values of the config are left out or replaced."""
        for path, keys in self.dropped.items():
            print(
                f"note: {path} does not accept {', '.join(keys)}: left out",
                file=sys.stderr,
            )
        for note in sections.replaced_seeds(
            self.config.as_dict(), self.config[sections.SEED]
        ):
            print(f"note: {note}", file=sys.stderr)

    def _print_config(self, form: str) -> None:
        """Print the resolved config; without null values unless ``form`` is empty."""
        printed = self.plain_config()
        if form:
            printed = without_null(printed)
        print(written(printed), end="")

    def plain_config(self) -> dict[str, Any]:
        """Return the resolved config, without seeds and shapes that the other values determine."""
        config = record.as_given(self.config, self.linked)
        for key in sections.MOVED:
            # Keys of LightningCLI, null unless the config states them
            if key in config and config[key] is None:
                del config[key]
        return config

    def _find_folder(self, root: Path, config: Mapping[str, Any]) -> None:
        """Find the run's folder below ``root``, and in it the checkpoint ``last`` or ``best``."""
        # A path, ``last``, ``best``, a word of Lightning, or None
        path = self.keywords.get("ckpt_path")
        fits = self.command == "fit"

        # A fit with a config has a folder of its own, every other command uses the
        # checkpoint's
        has_own_folder = fits and not self.continues
        if not has_own_folder and path is not None and path not in LIGHTNING_WORDS:
            self.folder = fit_folders.folder_of(Path(path))
        else:
            self.folder = fit_folders.folder_for(
                root, fit_folders.name_of(config), path
            )

        # These name a file in the folder that was found
        if path in ("last", "best"):
            checkpoint = fit_folders.checkpoint_in(self.folder, path, fits)
            self.keywords["ckpt_path"] = str(checkpoint)
        if fits and path is None:
            # An id may be left by a fit that stopped before its first checkpoint.
            forget_id(self.folder)

    def _set_up_loggers(self, group: str, config: Mapping[str, Any]) -> None:
        """Set what the loggers of the config leave open, such as their folder and name."""
        # A logger shows runs of one activation by its tag
        activation = (config["model"].get("init_args") or {}).get("activation")
        tags = None
        if activation:
            tags = [label(activation)[:64]]

        # Loggers summarise a metric by its best value
        directions = metric_classes.directions([self.stated])
        settings = {
            "name": os.environ.get("WANDB_NAME", self.folder.name),
            "group": group,
            "tags": tags,
            "modes": {metric: mode for metric, mode in directions.items() if mode},
        }
        fits = self.command == "fit"
        set_up_loggers(self.config.trainer.logger, self.folder, settings, fits)

    def _read_checkpoint(self) -> None:
        """Read the checkpoint, and compare its record with the config."""
        path = self.keywords.get("ckpt_path")
        if self.command != "fit" and path is None:
            # Evaluating an untrained network is allowed, but rarely meant
            print("note: without --ckpt_path the network is untrained", file=sys.stderr)
        self.contents = self.contents or checkpoint_at(path)
        trained = self.contents.get(checkpoints.CONFIG)
        if trained is not None:
            self._check_model(trained, str(path))

    def _check_model(self, trained: Mapping[str, Any], path: str) -> None:
        """Compare the model with the checkpoint's.

        A fit that resumes requires the same code and data, too.
        """
        trained = record.completed(trained, self.stated["model"])
        fits = self.command == "fit"

        # Read the recorded model, which may only name code that the config names too
        try:
            model = admitted(
                trained, "", user_texts=texts(self.stated), only=("model",)
            )
        except UntrustedError as error:
            value = get_dotted(dict(self.stated), error.key)
            raise self._difference(error.key, value, error.value, path) from error
        for shape in sections.SHAPES:
            if not sections.gives(self.stated, shape):
                model["model"]["init_args"].pop(shape, None)

        # Compare both with all defaults
        seed = run_seed(model[sections.SEED])
        recorded = record.record(plain(self.config), {})
        parsed = typed(model, "model", seed, sections.linked_shapes(model))
        trained_config = Namespace(model=parsed, data={})  # type: ignore[no-untyped-call]
        trained_values = {sections.SEED: seed, **record.as_given(trained_config, ())}
        compared = ["model"]
        if fits:
            compared.append(sections.SEED)
        for key in compared:
            difference = next(
                differences(recorded[key], trained_values[key], key), None
            )
            if difference is not None:
                raise self._difference(*difference, path)

        # Compare code and files
        code = record.changed_code(trained)
        files = record.changed_files(trained, recorded)
        for text in (*code, *files):
            change = f"{text} has changed since the checkpoint {path!r} was trained"
            if fits:
                raise ActlabError(
                    f"{change}. Restore it, or remove --ckpt_path to train from scratch."
                )
            print(f"note: {change}; the current version is used", file=sys.stderr)

    def _difference(self, key: str, value: Any, trained: Any, path: str) -> ActlabError:
        """Return the error for a value that differs from the checkpoint's."""
        remedy = f"Remove --{key} or -c."
        if self.command == "fit":
            remedy = f"Pass --{key} {trained}."
        return ActlabError(
            f"{key}: expected {trained!r}, which the checkpoint {path!r} was trained with, got "
            f"{value!r}. {remedy}"
        )

    def before_instantiate_classes(self) -> None:
        """Check the activation before a dataset is read for its shapes."""
        super().before_instantiate_classes()
        if self.trains_task and "activation" in self.arguments:
            activations.factory(self.arguments["activation"])

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the Trainer.

        It writes to the run's folder unless the config sets another folder.
        """
        trainer = super().instantiate_trainer(
            default_root_dir=str(self.folder), **kwargs
        )
        callbacks = trainer.callbacks  # type: ignore[attr-defined]

        # Count the updates of blocks
        bar = trainer.progress_bar_callback
        if type(bar) is RichProgressBar:
            callbacks[callbacks.index(bar)] = BlockProgressBar()

        # Write checkpoints to the folder, and read the one that has been read already
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                callback.dirpath = str(self.folder.resolve() / "checkpoints")
        writer = trainer.strategy.checkpoint_io
        if self.contents and isinstance(writer, checkpoints.AtomicCheckpointIO):
            writer.contents[self.keywords["ckpt_path"]] = self.contents
        # The Trainer has them now, so that the memory can be freed
        self.contents = None

        # Write matrices and predictions
        if self.stores:
            callbacks.append(MatrixFile(self.folder / "matrices.json"))
        if self.stores and self.command == "predict":
            from actlab.cli.predictions import PredictionTable  # loads pandas

            callbacks.append(PredictionTable(self.folder / "predictions.parquet"))
        return trainer

    def run(self) -> None:
        """Run the command; no other process fits in the folder meanwhile."""
        method = getattr(self.trainer, self.command)
        run = partial(method, self.model, datamodule=self.datamodule)
        # Only rank 0 locks and reports; evaluations write nothing that they could
        # damage
        if self.command != "fit" or not self.trainer.is_global_zero:
            run(**self.keywords)
            return

        lock: AbstractContextManager[Any] = nullcontext()
        if self.stores:
            lock = locked(self.folder)
        with lock, explained(self._resumption):
            run(**self.keywords)
        self._report()

    def _resumption(self) -> str:
        """Return how a fit that was stopped is resumed."""
        newest = self._newest_checkpoint()
        if newest is None:
            return f"{self.folder} has no checkpoint yet: the same command starts again"
        return f"--ckpt_path {self._ckpt_path_of(newest)} resumes from {newest}"

    def _newest_checkpoint(self) -> Path | None:
        """Return the newest checkpoint of the run; None without one.

        It is in the run's folder, or else in the ``dirpath`` of a callback.
        """
        stored = fit_folders.newest_first(self.folder)
        if not stored:
            paths = []
            for callback in self.trainer.checkpoint_callbacks:
                if isinstance(callback, ModelCheckpoint):
                    paths += [
                        Path(callback.best_model_path),
                        Path(callback.last_model_path),
                    ]
            stored = fit_folders.by_age(path for path in paths if path.is_file())
        # Nothing has been stored yet
        if not stored:
            return None
        return stored[0]

    def _ckpt_path_of(self, checkpoint: Path) -> str:
        """Return the value of ``--ckpt_path`` for the newest checkpoint.

        ``last`` requires a config, and a checkpoint in the folder of the run.
        """
        if self.continues or not checkpoint.is_relative_to(self.folder):
            return shlex.quote(str(checkpoint))
        return "last"

    def _report(self) -> None:
        """Print the folder of a fit, its last numbers and the command that evaluates it."""
        # Print the last numbers, without parts of metrics such as single classes
        numbers = []
        for name, value in self.trainer.callback_metrics.items():
            if "[" not in name:
                numbers.append(f"{name} {float(value):.4g}")
        logged = few(numbers, 8) or "nothing logged"
        # A trial of a few batches has no folder
        place = self.folder if self.stores else "fast_dev_run"
        reached = f"epoch {self.trainer.current_epoch}, step {self.trainer.global_step}"
        print(f"{place}: {logged} at {reached}")

        # Print the sizes of the splits
        if not self.stores and isinstance(self.datamodule, TensorDataModule):
            for split, number in self.datamodule.counts.items():
                line = f"{split}: {number:,}"
                published = self.datamodule.published.get(split)
                if published:
                    line += f" (published: {published:,})"
                print(line)

        # Print the next command
        if not self.stores:
            return
        newest = self._newest_checkpoint()
        if newest is None:
            return
        for command, step, loader in EVALUATIONS:
            if self._loads(loader) and is_overridden(step, self.model):
                checkpoint = self._ckpt_path_of(newest)
                print(f"next: actlab {command} {self.typed} --ckpt_path {checkpoint}")
                return

    def _loads(self, loader: str) -> bool:
        """Return whether the data or the model have a loader, and actlab's data its samples."""
        data = self.datamodule
        # Every TensorDataModule has the loader, but not every dataset has the split
        if isinstance(data, TensorDataModule) and not is_overridden(
            loader, data, TensorDataModule
        ):
            return getattr(data, loader.removesuffix("_dataloader")) is not None
        return is_overridden(loader, data) or is_overridden(loader, self.model)


def locked(folder: Path) -> AbstractContextManager[Any]:
    """Lock a run's folder until the end of a ``with`` block."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(folder / ".lock", timeout=0).acquire()
    except Timeout:
        raise ActlabError(
            f"another process trains in {str(folder)!r}. Wait until it ends, or pass another "
            "--trainer.default_root_dir."
        ) from None


def set_up_loggers(
    loggers: Any, folder: Path, settings: Mapping[str, Any], fits: bool
) -> None:
    """Set what the loggers in a parsed config accept and the config does not set.

    Args:
        loggers: a logger as parsed, a list of them, or a truth value.
        folder: the run's folder, where they write.
        settings: values by the name of the argument.
        fits: whether the command trains.
    """
    if not isinstance(loggers, list):
        loggers = [loggers]

    # Truth values and loggers without arguments stay unchanged
    for logger in loggers:
        if not isinstance(logger, Namespace) or logger.get("init_args") is None:
            continue
        arguments = logger.init_args

        # Write to the run's folder
        if "save_dir" in arguments:
            parameter = (parameters(locate(logger.class_path)) or {}).get("save_dir")
            if parameter is not None:
                unset = (None, RUN_FOLDER, parameter.default)
                if arguments.save_dir in unset:
                    arguments.save_dir = str(folder)

        # Set metric modes; name and tags only of loggers that have groups, such as
        # W&B's
        for key, value in settings.items():
            if arguments.get(key, "") is None and (
                key == "modes" or "group" in arguments
            ):
                arguments[key] = value

        # With the folder's id, a resumed fit and the evaluation of a fit continue its
        # history.
        if (fits or has_id(folder)) and arguments.get("id", "") is None:
            arguments.id = ensure_id(folder)


class SeedType:
    """Reads the seed of a run; for ``true`` it is Lightning's choice, to be recorded."""

    def __call__(self, value: Any) -> int:
        """Return the seed."""
        if value is True or str(value).lower() == "true":
            # The variable is Lightning's
            value = os.environ.get("PL_GLOBAL_SEED", "0")
        return run_seed(value)

    def __repr__(self) -> str:
        """Return the type that the help shows."""
        return "int"


def without_null(value: Any) -> Any:
    """Return nested values without the keys of null values."""
    if isinstance(value, list):
        return [without_null(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: without_null(item) for key, item in value.items() if item is not None}
