"""``actlab fit | validate | test | predict``: LightningCLI with actlab's argument links and defaults."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from filelock import FileLock, Timeout
from jsonargparse import Namespace
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, SaveConfigCallback
from pytorch_lightning.utilities.model_helpers import is_overridden

from actlab.analysis.wording import few
from actlab.callbacks import BlockProgressBar
from actlab.cli import arguments, fit_folders, fit_help
from actlab.cli.arguments import RUN_FOLDER, Words, value_of
from actlab.config import metric_classes, record, sections
from actlab.config.admission import UntrustedError, admitted
from actlab.config.class_paths import class_of
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
from actlab.runtime import devices, matmul
from actlab.runtime.denormals import flush_denormals
from actlab.runtime.signals import explained
from actlab.storage import checkpoints
from actlab.storage.contents import texts
from actlab.storage.files import regular
from actlab.storage.logger_ids import forget_id, has_id, id_in
from actlab.storage.mappings import parse, written

TRUST = "--trust"  # a checkpoint may name any class, and files with activations
SKIP_NULL = ("skip_null", "skip_unset")  # values of --print_config, as in LightningCLI
# Callbacks of Lightning that change the training.
CHANGING = {"EarlyStopping", "StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging"}
# Commands that evaluate a fit, with the methods that they require of the model, and of the data or
# the model.
EVALUATIONS = (
    ("test", "test_step", "test_dataloader"),
    ("validate", "validation_step", "val_dataloader"),
)
LIGHTNINGS = ("best", "last", "hpc")  # values of ckpt_path that are not paths


class RecordConfig(SaveConfigCallback):
    """Write the resolved config of a fit to the run's folder, and log it as nested values."""

    def __init__(self, parser: Any, config: Any, text: str, **kwargs: Any) -> None:
        # Without the parser, which spawned processes cannot unpickle.
        super().__init__(None, None, **kwargs)  # type: ignore[arg-type]
        self.text = text

    def save_config(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the config file and log the hyperparameters."""
        if stage == "fit":
            # A later run in the same folder with another config writes `config-1.yaml` and so on.
            path, number = Path(trainer.default_root_dir, "config.yaml"), 0
            while path.exists() and regular(path).read_text(encoding="utf-8") != self.text:
                number += 1
                path = path.with_stem(f"config-{number}")
            path.write_text(self.text, encoding="utf-8")
        for logger in trainer.loggers:
            logger.log_hyperparams(parse(self.text))


class CommandLine(ActlabCLI):
    """LightningCLI that finds the run's folder and checks the config against the checkpoint's.

    ``contents`` are what the checkpoint holds, if it was read. Where ``shows`` is a text, the
    resolved config is printed instead, without null values if it is not empty. ``typed`` are the
    options as typed, without the checkpoint, for the next command that a fit prints.
    """

    def __init__(
        self,
        command: str,
        words: Words,
        name: str | None = None,
        checkpoint: str | None = None,
        contents: Mapping[str, Any] | None = None,
        shows: str | None = None,
        typed: str = "",
        **trainer_defaults: Any,
    ) -> None:
        self.command, self.name, self.shows, self.typed = command, name, shows, typed
        # The parser never sees the checkpoint: LightningCLI would merge its hyperparameters over
        # the words.
        self.keywords: dict[str, Any] = {"ckpt_path": checkpoint}
        self.contents = contents  # until the Trainer has them
        self.left_out = words.left_out
        self.folder = Path()
        super().__init__(
            words.given, words.words, record=RecordConfig, any_optimizer=True, **trainer_defaults
        )

    def run(self) -> None:
        """Run the command; no other process fits in the folder meanwhile."""
        run = partial(getattr(self.trainer, self.command), self.model, datamodule=self.datamodule)
        if self.command != "fit" or not self.trainer.is_global_zero:
            run(**self.keywords)
            return
        with locked(self.folder) if self.stores else nullcontext(), explained(self._resumption):
            run(**self.keywords)
        self._report()

    @property
    def stores(self) -> bool:
        """Whether the command writes files of its own; one with ``fast_dev_run`` leaves none."""
        return not self.config.trainer.fast_dev_run

    def _resumption(self) -> str:
        """Return how a fit that was stopped is resumed."""
        newest = self._newest()
        if newest is None:
            return f"{self.folder} has no checkpoint yet: the same command starts again"
        return f"--ckpt_path {self._word_of(newest)} resumes from {newest}"

    def _newest(self) -> Path | None:
        """Return the newest checkpoint of the run, in its folder or else in the ``dirpath`` of a callback."""
        stored = fit_folders.newest_first(self.folder)
        if not stored:
            callbacks = [
                c for c in self.trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)
            ]
            paths = [
                Path(p) for c in callbacks for p in (c.best_model_path, c.last_model_path) if p
            ]
            stored = fit_folders.by_age(path for path in paths if path.is_file())
        return stored[0] if stored else None

    def _word_of(self, checkpoint: Path) -> str:
        """Return what names the newest checkpoint on a command line.

        ``last`` requires a config, and a checkpoint in the folder of the run.
        """
        if "callbacks" in self.trainer_defaults or not checkpoint.is_relative_to(self.folder):
            return shlex.quote(str(checkpoint))
        return "last"

    def _report(self) -> None:
        """Print the folder of a fit that has ended, its last numbers and the command that evaluates it."""
        logged = {
            name: value for name, value in self.trainer.callback_metrics.items() if "[" not in name
        }
        numbers = few([f"{name} {float(value):.4g}" for name, value in logged.items()], 8)
        place = self.folder if self.stores else "fast_dev_run"
        reached = f"epoch {self.trainer.current_epoch}, step {self.trainer.global_step}"
        print(f"{place}: {numbers or 'nothing logged'} at {reached}")
        if not self.stores and isinstance(self.datamodule, TensorDataModule):
            for split, number in self.datamodule.counts.items():
                published = self.datamodule.published.get(split)
                print(
                    f"{split}: {number:,}" + (f" (published: {published:,})" if published else "")
                )

        newest = self._newest() if self.stores else None
        if newest is None:
            return
        for command, step, loader in EVALUATIONS:
            if self._loads(loader) and is_overridden(step, self.model):
                print(f"next: actlab {command} {self.typed} --ckpt_path {self._word_of(newest)}")
                return

    def _loads(self, loader: str) -> bool:
        """Return whether the data or the module define a loader, and actlab's datamodules its samples."""
        data = self.datamodule
        if isinstance(data, TensorDataModule) and not is_overridden(loader, data, TensorDataModule):
            return getattr(data, loader.removesuffix("_dataloader")) is not None
        return any(is_overridden(loader, owner) for owner in (data, self.model))

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the seed, which is always a number."""
        parser.add_argument("--seed_everything", type=seed_of, default=0, help="Seed of the run.")

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link seed and shapes, and add the arguments and the help of the command."""
        parser.usage = fit_help.usage(self.command)
        for side in sections.SECTIONS:
            parser.link_arguments(sections.SEED, f"{side}.init_args.seed")
        self.link_shapes(parser)
        skipped: set[Any] = {*self.subcommands()[self.command], "ckpt_path"}
        parser.add_method_arguments(pl.Trainer, self.command, skip=skipped)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the words; find the run's folder and its checkpoint."""
        with one_line_errors(self.given):
            metric_classes.check(self.given)  # before the parser, which does not name the metric
            with importing("the code of the config" if self.given else f"actlab {self.command}"):
                self.config = config = parser.parse_args(args)
        config.pop("config")
        self.keywords |= {
            key: config.pop(key) for key in sections.arguments_of(self.command) if key in config
        }
        for name in ("trainer", *sections.SECTIONS):
            with_text(self.given.get(name), config[name], name, linked=sections.SHAPES)
            if name != "trainer":
                complete(name, config[name])
        for path, keys in self.left_out.items():
            print(f"note: {path} does not accept {', '.join(keys)}: left out", file=sys.stderr)
        for note in sections.replaced_seeds(config.as_dict(), config[sections.SEED]):
            print(f"note: {note}", file=sys.stderr)
        if self.shows is not None:
            print(written(without_null(self.shown()) if self.shows else self.shown()), end="")
            parser.exit()
        root = (
            config.trainer.default_root_dir
            or f"runs/{self.name or config.model.class_path.split('.')[-1]}"
        )
        config.trainer.default_root_dir = root
        plain = self.shown()
        self.save_config_kwargs["text"] = written(plain)
        self._find_folder(Path(root), plain)

    def shown(self) -> dict[str, Any]:
        """Return the resolved config, without seeds and shapes that follow from the rest."""
        given = record.as_given(self.config, sections.linked_shapes(self.given))
        return {
            key: value
            for key, value in given.items()
            if key not in sections.MOVED or value is not None
        }

    def _find_folder(self, root: Path, plain: Mapping[str, Any]) -> None:
        config, fit, path = self.config, self.command == "fit", self.keywords.get("ckpt_path")
        if (
            path is not None
            and path not in LIGHTNINGS
            and (not fit or "callbacks" in self.trainer_defaults)
        ):
            self.folder = fit_folders.folder_of(Path(path))
        else:
            self.folder = fit_folders.folder_for(root, fit_folders.name_of(plain), path)
        if path in ("last", "best"):
            self.keywords["ckpt_path"] = path = str(
                fit_folders.checkpoint_in(self.folder, path, fit)
            )
        if fit and path is None:
            forget_id(self.folder)  # an id left by a fit that stopped before its first checkpoint
        activation = (plain["model"].get("init_args") or {}).get("activation")
        modes = {
            name: mode for name, mode in metric_classes.directions([self.given]).items() if mode
        }
        name = os.environ.get("WANDB_NAME", self.folder.name)
        known = {
            "name": name,
            "group": root.name,
            "tags": [label(activation)[:64]] if activation else None,
        }
        if self.stores:
            set_up_loggers(config.trainer.logger, self.folder, {**known, "modes": modes}, fit)
        if not fit and path is None:
            print("note: without --ckpt_path the network is untrained", file=sys.stderr)
        self.contents = self.contents or checkpoint_at(path)
        if (trained := self.contents.get(checkpoints.CONFIG)) is not None:
            self._check_model(trained, str(path))

    def _check_model(self, trained: Mapping[str, Any], path: str) -> None:
        """Compare the model with the checkpoint's; of a fit to resume, code and data must be the same, too."""
        trained = record.completed(trained, self.given["model"])
        try:
            model = admitted(trained, "", said=texts(self.given), only=("model",))
        except UntrustedError as error:
            given = get_dotted(dict(self.given), error.key)
            raise self._differs(error.key, given, error.value, path) from error
        for name in sections.SHAPES:
            if not sections.gives(self.given, name):
                model["model"]["init_args"].pop(name, None)
        seed, recorded = run_seed(model[sections.SEED]), record.record(plain(self.config), {})
        alone = Namespace(model=typed(model, "model", seed), data={})  # type: ignore[no-untyped-call]
        trained_with = {sections.SEED: seed, **record.as_given(alone, ())}
        fit = self.command == "fit"
        for key in ("model", sections.SEED) if fit else ("model",):
            for difference in differences(recorded[key], trained_with[key], key):
                raise self._differs(*difference, path)
        for text in (*record.changed_code(trained), *record.changed_files(trained, recorded)):
            changed = f"{text} has changed since the checkpoint {path!r} was trained"
            if fit:
                raise ActlabError(
                    f"{changed}: restore it, or omit --ckpt_path to train from scratch"
                )
            print(f"note: {changed}; the current version is used", file=sys.stderr)

    def _differs(self, key: str, given: Any, trained: Any, path: str) -> ActlabError:
        remedy = f"omit {key} or -c"
        if self.command == "fit":
            remedy = f"give --{key} {trained}"
        return ActlabError(
            f"{key} is {given!r}, but the checkpoint {path!r} was trained with {trained!r}: {remedy}"
        )

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the Trainer, which writes to the run's folder unless the config sets another folder."""
        trainer = super().instantiate_trainer(default_root_dir=str(self.folder), **kwargs)
        bar, callbacks = trainer.progress_bar_callback, trainer.callbacks  # type: ignore[attr-defined]
        if type(bar) is RichProgressBar:
            callbacks[callbacks.index(bar)] = BlockProgressBar()
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                callback.dirpath = str(self.folder.resolve() / "checkpoints")
        writer = trainer.strategy.checkpoint_io
        if self.contents and isinstance(writer, checkpoints.AtomicCheckpointIO):
            writer.contents[self.keywords["ckpt_path"]] = self.contents
        self.contents = None
        if self.stores:
            callbacks.append(MatrixFile(self.folder / "matrices.json"))
        if self.stores and self.command == "predict":
            from actlab.cli.predictions import PredictionTable  # loads pandas

            callbacks.append(PredictionTable(self.folder / "predictions.parquet"))
        return trainer


def locked(folder: Path) -> AbstractContextManager[Any]:
    """Lock a run's folder until the end of a ``with`` block."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(folder / ".lock", timeout=0).acquire()
    except Timeout:
        raise ActlabError(
            f"another process trains in {str(folder)!r}: wait until it ends, or give another "
            "--trainer.default_root_dir"
        ) from None


def set_up_loggers(loggers: Any, folder: Path, known: Mapping[str, Any], fit: bool) -> None:
    """Set where the loggers in a parsed config write, and what they accept of ``known``, unless it is given."""
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        if not isinstance(logger, Namespace) or logger.get("init_args") is None:
            continue
        arguments = logger.init_args
        if "save_dir" in arguments:
            taken = (parameters(locate(logger.class_path)) or {}).get("save_dir")
            if taken is not None and arguments.save_dir in (None, RUN_FOLDER, taken.default):
                arguments.save_dir = str(folder)
        for key, value in known.items():
            if arguments.get(key, "") is None and (key == "modes" or "group" in arguments):
                arguments[key] = value
        # With the folder's id, a resumed fit and the evaluation of a fit continue its history.
        if (fit or has_id(folder)) and arguments.get("id", "") is None:
            arguments.id = id_in(folder)


def _help_words(options: Sequence[arguments.Option], command: str) -> list[str]:
    """Return the words for which LightningCLI prints help; without a class they get the config's."""
    others = [option for option in options if not option.asks_help]
    words = []
    for option in options:
        if not option.asks_help:
            continue
        section = option.name.removeprefix("--").removesuffix(".help")
        if section not in sections.SECTIONS or option.value is not None:
            words.append(option.word)
            continue

        # Find the class of the config
        kind = class_of(Words(others, command).given.get(section))
        if kind is None:
            raise ActlabError(
                f"{option.name}: expected a class, got none. Add -c CONFIG, or pass --{section}.help CLASS."
            )
        words.append(f"{option.name}={kind}")
    return words


def main(args: Sequence[str]) -> None:
    """Run ``fit``, ``validate``, ``test`` or ``predict``, the first of the words."""
    command, *rest = args
    kept = [word for word in rest if word != TRUST]
    options = arguments.options_of(kept)
    for route in (str(option.value) for option in options if option.name == "--products"):
        chosen = matmul.use(matmul.for_mlps() if route == matmul.AUTO else route)
        print(f"float32 matmul backend on the CPU: {chosen}")
    for answer in (option.value for option in options if option.name == "--graphs"):
        if answer not in ("true", "false"):
            raise ActlabError(f"--graphs: expected true or false, got {answer}. Pass one of them.")
        devices.graphs = answer == "true"
    if any(option.asks_help for option in options):
        words = Words([], command)
        words.words.extend(_help_words(options, command))
        for package in sections.PACKAGES.values():
            import_module(package)  # a bare name is one of an imported class
        with one_line_errors():
            CommandLine(command, words)
    shows = next((o.value or "" for o in options if o.name == arguments.PRINT), None)
    if shows not in (None, "", *SKIP_NULL):
        raise ActlabError(f"{arguments.PRINT}={shows}: give no value, or {' or '.join(SKIP_NULL)}")
    paths = [option.value for option in options if option.name == "--ckpt_path"]
    path = checked_path(paths[-1] if paths else None)
    of_process = ("--ckpt_path", "--products", "--graphs")
    options = [option for option in options if option.name not in of_process]
    files = [Path(str(option.value)) for option in options if option.name == "--config"]
    base = None
    contents = {} if files else checkpoint_at(path)
    if (trained := contents.get(checkpoints.CONFIG)) is not None:
        remedy = shlex.join(["actlab", *args, TRUST])
        said = [
            text for option in options for text in texts(value_of(option.value, {}, option.name))
        ]
        base = admitted(trained, remedy, len(kept) < len(rest), said)
    words = Words(options, command, base)
    path = path if paths else checked_path(words.checkpoint)
    if words.given.get("model") is None and path is not None:
        raise ActlabError(f"the checkpoint {path!r} holds no config: give one with -c FILE")
    sections.check(words.given, command)
    name = next((file.stem for file in files if not file.is_fifo()), None)
    typed = " ".join([*(option.typed for option in options), *[TRUST] * (len(kept) < len(rest))])
    continues = command == "fit" and base is not None
    flush_denormals()
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_is_no_advert)
    with one_line_errors(words.given), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The number of training batches .* is smaller than the logging interval"
        )
        if command != "fit" or continues:  # callback states of training are irrelevant here
            warnings.filterwarnings("ignore", ".*callbacks used to create the checkpoint")
        defaults: dict[str, Any] = {} if command == "fit" else {"logger": False}
        if continues:
            defaults = continued(str(path), contents)
        CommandLine(command, words, name, path, contents, shows, typed, **defaults).run()


def seed_of(value: Any) -> int:
    """Return the seed of a run. For ``true`` it is Lightning's choice, so that it can be recorded."""
    chosen = value is True or str(value).lower() == "true"
    return run_seed(os.environ.get("PL_GLOBAL_SEED", "0") if chosen else value)


def without_null(value: Any) -> Any:
    """Return nested values without the keys of null values."""
    if isinstance(value, list):
        return [without_null(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: without_null(item) for key, item in value.items() if item is not None}


def continued(checkpoint: str, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the Trainer for a fit that continues from a record: it only keeps its last epoch."""
    states = {str(key).partition("{")[0] for key in contents.get("callbacks") or ()}
    if left_out := sorted(states & CHANGING):
        print(
            f"note: the checkpoint was trained with {', '.join(left_out)}, left out here: to keep it, run "
            f"actlab fit -c CONFIG --ckpt_path {checkpoint}",
            file=sys.stderr,
        )
    last = ModelCheckpoint(filename="last", save_on_train_epoch_end=True)
    return {"logger": False, "callbacks": [last]}


def _is_no_advert(record: logging.LogRecord) -> bool:
    """Hide Lightning's tips for other products, and its line about absent TPUs."""
    return not record.getMessage().startswith(("💡", "TPU available: False"))


def checkpoint_at(path: str | None) -> Mapping[str, Any]:
    """Return a checkpoint; an empty mapping if there is no path."""
    return checkpoints.read(path) if path is not None and path not in LIGHTNINGS else {}


def checked_path(path: str | None) -> str | None:
    """Return the path of a checkpoint that is a local file, a word of Lightning's such as ``last``, or None."""
    if path in (None, "null", *LIGHTNINGS):
        return None if path == "null" else path
    if not Path(str(path)).is_file():
        raise ActlabError(
            f"there is no checkpoint file {path!r} on this computer: give its path, last or best"
        )
    return str(path)
