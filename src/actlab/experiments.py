"""A config becomes Trainer, task and data: what the command line, the engines and the probes build with."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from jsonargparse import SUPPRESS, Namespace
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from actlab import activations, configs, mistakes
from actlab.batches import restore_batches
from actlab.checkpoints import AtomicCheckpointIO
from actlab.errors import ActlabError, one_line
from actlab.guards import PlannedLength, StopOnSignal
from actlab.parsing import parser_of, run_seed, section, typed
from actlab.signatures import locate
from actlab.storage import records
from actlab.tasks import Task

# Tensors are in memory and a batch is one gather: loader workers would only copy.
warnings.filterwarnings("ignore", ".*does not have many workers.*")
# Workers that read files wait for disks: more of them than cores is no mistake.
warnings.filterwarnings("ignore", "This DataLoader will create")
# Lightning 2.6 asks torch by a name that torch 2.13 deprecates.
warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class ActlabCLI(LightningCLI):
    """LightningCLI that gives the seed to task and data, and the data's shapes to the task.

    Args:
        args: the words of a command line, or a config as nested values.
        given: what they say as nested values, for what must be known before they are parsed.
        run: whether the first word is a command to run.
        record: the callback that keeps the resolved config.
        trainer_defaults: Trainer arguments where the config is silent.
    """

    def __init__(
        self,
        args: list[str] | dict[str, Any],
        given: Mapping[str, Any],
        run: bool,
        record: type[SaveConfigCallback] | None = None,
        **trainer_defaults: Any,
    ) -> None:
        self.given = given
        units = f"Activations: {', '.join(activations.names())}; or package.module:Unit, ./file.py:Unit."
        described = {command: {"description": units} for command in self.subcommands()}
        super().__init__(
            model_class=pl.LightningModule,
            datamodule_class=pl.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            save_config_callback=record,
            save_config_kwargs={"save_to_log_dir": False} if record else None,
            parser_kwargs={"exit_on_error": False, **(described if run else {})},
            trainer_defaults={
                "use_distributed_sampler": not configs.slices_batches(given),
                **trainer_defaults,
            },
            args=args,
            run=run,
            auto_configure_optimizers=False,
        )

    def setup_parser(self, add_subcommands: bool, main_kwargs: Any, subparser_kwargs: Any) -> None:
        """Make the parser; of a config one that builds what `actlab.parsing` has read."""
        if add_subcommands:
            super().setup_parser(add_subcommands, main_kwargs, subparser_kwargs)
        else:
            self.parser = copy.deepcopy(parser_of("trainer", *configs.SECTIONS))  # to put links into
            self._link_shapes(self.parser)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, without Lightning's warning that ``args`` and the words of the process are both there."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "LightningCLI's args parameter")
            if isinstance(args, dict):
                self.config = self._typed(args)
            else:
                super().parse_arguments(parser, args)
        config = self.config.get(str(self.config.get("subcommand")), self.config)
        restore_batches(config.trainer, self.given.get("trainer") or {})

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the seed to both sides, and to the model each shape that it takes and the config leaves out.

        A linked value is not written into the resolved config; a given one is.
        """
        # `configs.check` refuses these, but configs that LightningCLI has resolved hold them as null.
        for key in configs.MOVED:
            parser.add_argument(f"--{key}", type=type(None), default=SUPPRESS, help=SUPPRESS)
        for side in configs.SECTIONS:
            parser.link_arguments(configs.SEED, f"{side}.init_args.seed", compute_fn=run_seed)
        self._link_shapes(parser)

    def _link_shapes(self, parser: LightningArgumentParser) -> None:
        for name in configs.linked_shapes(self.given):
            parser.link_arguments(
                "data", f"model.init_args.{name}", compute_fn=self._shape(name), apply_on="instantiate"
            )

    def _typed(self, given: Mapping[str, Any]) -> Namespace:
        """A config as the parser reads it, with the seed on both sides and the Trainer's defaults."""
        seed = run_seed(given.get(configs.SEED, 0))
        found: Namespace = Namespace()  # type: ignore[no-untyped-call]
        found[configs.SEED], found.trainer = seed, section("trainer", given.get("trainer") or {})
        for name in configs.SECTIONS:
            found[name] = typed(given, name, seed)
        for name in self.trainer_defaults.keys() - (given.get("trainer") or {}).keys():
            if name != "callbacks":  # which the Trainer is given beside those of the config
                found.trainer[name] = self.trainer_defaults[name]
        return found

    def _shape(self, name: str) -> Callable[[pl.LightningDataModule], Any]:
        """A function that reads a shape off the data for the model; see `shape_for`."""

        def read(data: pl.LightningDataModule) -> Any:
            return shape_for(self._model, self._arguments, name, data)

        read.__name__ = name  # what --help shows
        return read

    @property
    def _model(self) -> type:
        """The model's class."""
        found: type = locate(self._get(self.config, "model").class_path)
        return found

    @property
    def _arguments(self) -> dict[str, Any]:
        """The model's arguments as parsed."""
        arguments = self._get(self.config, "model").get("init_args")
        return dict(arguments.as_dict()) if arguments else {}

    def before_instantiate_classes(self) -> None:
        """Raise an error for an unknown activation before a dataset is read for its shapes."""
        config = self.config.get(str(self.subcommand), self.config)
        self.config_dump = records.plain(config)  # Lightning would write YAML and read it
        if issubclass(self._model, Task) and "activation" in self._arguments:
            activations.factory(self._arguments["activation"])

    def after_instantiate_classes(self) -> None:
        """Tell checkpoints what is trained.

        Raises:
            ActlabError: where the config gives a task another shape than the data has.
        """
        for name in configs.SHAPES if issubclass(self._model, Task) else ():
            if configs.gives(self.given, name):
                check_shape(name, self._arguments.get(name), self.datamodule)
        config = self.config.get(str(self.subcommand), self.config)
        config = records.with_digests(records.record(config, self._linked_shapes()))
        if isinstance(self.model, Task):
            self.model.config = config
        if isinstance(writer := self.trainer.strategy.checkpoint_io, AtomicCheckpointIO):
            writer.config = config

    def _linked_shapes(self) -> dict[str, Any]:
        """The shapes that the model was given by the data."""
        linked = [name for name in configs.linked_shapes(self.given) if name in self._arguments]
        return {name: shape_for(self._model, self._arguments, name, self.datamodule) for name in linked}

    def instantiate_classes(self) -> None:
        """Build data, task and Trainer.

        Raises:
            ActlabError: for bad input, and for whatever a constructor raises.
        """
        try:
            super().instantiate_classes()
        except ActlabError:
            raise
        except Exception as error:  # another author's class may raise anything
            raise mistakes.bad_input(error) or mistakes.unbuilt(error) from error

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the Trainer, which `actlab.guards` watch.

        It writes checkpoints by `AtomicCheckpointIO` unless a plugin of its own does.

        Raises:
            ActlabError: for a value that Lightning refuses, such as an unknown strategy.
        """
        restore_batches(self._get(self.config_init, "trainer"), self.given.get("trainer") or {})
        try:
            trainer = super().instantiate_trainer(**kwargs)
        except (ModuleNotFoundError, RuntimeError, TypeError, ValueError) as error:
            raise ActlabError(f"trainer: {one_line(error)}") from error
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()
        trainer.callbacks[:0] = [StopOnSignal(), PlannedLength()]  # type: ignore[attr-defined]
        return trainer


def shape_for(model: type, arguments: Mapping[str, Any], name: str, data: pl.LightningDataModule) -> Any:
    """The data's ``num_classes`` or ``input_shape`` for a model whose config leaves it out.

    Args:
        model: the model's class.
        arguments: of the model, with its defaults.
        name: of the shape.
        data: the datamodule; it does not have a shape that is None.

    Returns:
        The data's value; the default of a user's model where the data has none; None where the model does not
        take it.

    Raises:
        ActlabError: where the data has none and the model has no default, or is a task: the default of a task
            need not fit the data.
    """
    if name not in arguments:
        return None
    if (found := getattr(data, name, None)) is not None:
        return found
    if issubclass(model, Task) or arguments[name] is None:
        raise ActlabError(f"{type(data).__qualname__} has no {name}: give model.{name} in the config")
    return arguments[name]


def check_shape(name: str, given: Any, data: pl.LightningDataModule) -> None:
    """Check a shape that the config gives a task against the data's, where the data has it.

    Raises:
        ActlabError: where they differ.
    """
    found = getattr(data, name, None)
    same = list(given) == list(found) if isinstance(given, Sequence) and found else given == found
    if given is not None and found is not None and not same:
        raise ActlabError(
            f"model.{name} is {given!r}, but {type(data).__qualname__} has {name} {found!r}: "
            f"leave model.{name} out"
        )


class Experiment(NamedTuple):
    """The three objects of one run."""

    trainer: pl.Trainer
    task: pl.LightningModule
    data: pl.LightningDataModule


def build(config: Mapping[str, Any], **trainer_defaults: Any) -> Experiment:
    """Instantiate a config without running it; its Trainer is silent unless the config says otherwise.

    Args:
        config: a complete LightningCLI config as nested values.
        trainer_defaults: Trainer arguments where the config is silent.

    Raises:
        ActlabError: for a key or value that the config cannot have.
    """
    given = {key: value for key, value in config.items() if value is not None}
    configs.check(given)
    with mistakes.one_line_errors(given):
        cli = ActlabCLI(copy.deepcopy(given), given, run=False, **{**QUIET, **trainer_defaults})
    return Experiment(cli.trainer, cli.model, cli.datamodule)


@contextmanager
def without_denormals() -> Iterator[None]:
    """Round numbers below 1e-38 to 0: the moments of Adam fade into them where a gradient stays 0.

    The CPU computes with them a hundred times slower: after 2,000 updates of the MNIST classifier with ReLU
    they cost a third of the time. Threads that torch starts later do the same.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
