"""Build Trainer, task and datamodule from a config, for commands, engines and probes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import pytorch_lightning as pl
from jsonargparse import Namespace
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning_fabric.utilities.data import sized_len
from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    LearningRateFinder,
    StochasticWeightAveraging,
)
from pytorch_lightning.cli import (
    LightningArgumentParser,
    LightningCLI,
    SaveConfigCallback,
)
from pytorch_lightning.utilities import CombinedLoader

from actlab.callbacks import SeedEveryEpoch
from actlab.config import identity, messages, sections
from actlab.config.plain_values import plain
from actlab.config.record import record as record_of
from actlab.config.record import with_digests
from actlab.config.resolved import parser_of, resolved, run_seed, typed
from actlab.config.signatures import locate
from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.random.seeding import seed_generators
from actlab.runtime import signals
from actlab.runtime.guards import PlannedLength, StopOnSignal, Unfused
from actlab.storage.checkpoints import AtomicCheckpointIO
from actlab.storage.contents import ContentsByText
from actlab.tasks import Task
from actlab.tasks.building import saves_hyperparameters
from actlab.tasks.complete import CompleteCheckpoint
from actlab.tasks.outside import StateOutside
from actlab.tasks.training import Training

# Tensors are in memory and a batch is a single gather: loader workers would only add
# copies.
warnings.filterwarnings("ignore", ".*does not have many workers.*")
# Workers that read files wait for disks: more workers than cores are intended.
warnings.filterwarnings("ignore", "This DataLoader will create")
# Lightning 2.6 uses a name that torch 2.13 deprecates.
warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")

# Arguments of LightningCLI: the config names the classes of model and data.
ANY_CLASSES: dict[str, Any] = {
    "model_class": pl.LightningModule,
    "subclass_mode_model": True,
    "datamodule_class": pl.LightningDataModule,
    "subclass_mode_data": True,
}
# Trainer arguments for keys that a config does not set
OF_TRAINER = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "devices": 1,
}
# Callbacks that tasks reject, and why
_UNRECORDED = {
    LearningRateFinder: "trains with another learning rate than the checkpoints record. Remove it "
    "and set model.optimizer.lr, which `actlab tune` can search.",
    BatchSizeFinder: "trains with another batch size than the checkpoints record. Remove it and "
    "set data.batch_size.",
    StochasticWeightAveraging: "keeps averaged weights that no checkpoint and no test would "
    "contain. Use pytorch_lightning.callbacks.WeightAveraging or EMAWeightAveraging.",
}


class ActlabCLI(LightningCLI):
    """LightningCLI that passes the seed to task and data, and the data's shapes to the task.

    It builds Trainer, task and datamodule from a config, with actlab's callbacks and the training
    record for checkpoints. It runs nothing, and it does not check the top level of a config:
    `actlab.config.sections.check` does. `ConfigCLI` takes nested values in place of words.
    """

    def __init__(
        self,
        stated: Mapping[str, Any],
        args: Any,
        digests: ContentsByText | None,
        record: type[SaveConfigCallback] | None = None,
        any_optimizer: bool = False,
        **trainer_defaults: Any,
    ) -> None:
        """Parse a config and build its parts.

        Args:
            stated: nested values that the user states, without defaults.
            args: what LightningCLI parses.
            digests: computed digests of files and code, to which new ones are added; see
                `record.with_digests`. None leaves them out of the record.
            record: callback that writes the config of a run.
            any_optimizer: whether the config may set an optimiser at the top level.
            **trainer_defaults: Trainer arguments for keys that the config does not set.
        """
        self.stated = stated
        self.digests = digests
        self.linked: tuple[
            str, ...
        ] = ()  # shapes that the config omits; see `link_shapes`
        self.shapes: dict[str, Any] = {}  # the data's values of them

        # The config belongs to the run's folder, not to the logger's
        save_options = {"save_to_log_dir": False} if record else None
        super().__init__(
            **ANY_CLASSES,
            save_config_callback=record,
            save_config_kwargs=save_options,
            trainer_defaults=trainer_defaults,
            seed_everything_default=0,
            auto_configure_optimizers=any_optimizer,
            parser_kwargs={"exit_on_error": False},
            args=args,
            run=False,
        )

    def link_shapes(self, parser: LightningArgumentParser) -> None:
        """Add a link from the data to the model for each shape that is not given."""
        self.linked = sections.linked_shapes(self.stated)
        for name in self.linked:
            shape = partial(self.shape, name)  # spawned processes unpickle it
            shape.__name__ = name  # type: ignore[attr-defined]  # what --help shows
            parser.link_arguments(
                "data",
                f"model.init_args.{name}",
                compute_fn=shape,
                apply_on="instantiate",
            )

    def shape(self, name: str, data: pl.LightningDataModule) -> Any:
        """Return a shape of the data for the model, and note it for the record; see `shape_for`."""
        self.shapes[name] = shape_for(self.model_type, self.arguments, name, data)
        return self.shapes[name]

    @property
    def trains_task(self) -> bool:
        """Whether the model is one of actlab's tasks."""
        return issubclass(self.model_type, Task)

    @cached_property
    def model_type(self) -> type:
        """The model's class."""
        kind: type = locate(self.config.model.class_path)
        return kind

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The model's arguments with their defaults."""
        arguments = self.config.model.get("init_args")
        if not arguments:
            return {}
        return dict(arguments.as_dict())

    def before_instantiate_classes(self) -> None:
        """Store the config in plain values, for the record."""
        self.resolved = plain(self.config)
        # Without a mapping, Lightning dumps and parses YAML.
        self.config_dump = copy.deepcopy(self.resolved)

    def after_instantiate_classes(self) -> None:
        """Check callbacks and stated shapes, set the training record for checkpoints, and seed."""
        # Checks
        if isinstance(self.model, Task):
            for name in sections.SHAPES:
                if name not in self.linked:
                    check_shape(name, self.arguments.get(name), self.datamodule)
            _check_callbacks(self.trainer.callbacks)  # type: ignore[attr-defined]

        # The training record
        shapes = {
            name: shape for name, shape in self.shapes.items() if name in self.arguments
        }
        config = record_of(self.resolved, shapes)
        if self.digests is not None:
            config = with_digests(config, self.digests)
        if isinstance(self.model, Task):
            self.model.config = config
            # The config is logged as a whole
            self.model._log_hyperparams &= saves_hyperparameters(self.model)

        # Checkpoints store it
        writer = self.trainer.strategy.checkpoint_io
        if isinstance(writer, AtomicCheckpointIO):
            writer.config = config

        # Code outside actlab draws from the global generators
        if self.seeds_globally:
            seed_generators(self.config[sections.SEED])

    def instantiate_classes(self) -> None:
        """Build data, task and Trainer; seed before each if classes outside actlab may draw."""
        if self.seeds_globally:
            for action in self.parser._actions:
                if action.dest in sections.SECTIONS:
                    # LightningCLI builds model and data by these actions
                    section: Any = action
                    section.instantiate_classes = partial(
                        self._seeded, section.instantiate_classes
                    )

        try:
            super().instantiate_classes()
        except ActlabError:
            raise
        except Exception as error:  # a third-party class may raise anything
            raise messages.bad_input(error) or messages.unbuilt(error) from error

    @cached_property
    def seeds_globally(self) -> bool:
        """Whether model or data may draw from the global generators: a class is not actlab's."""
        return not identity.is_of_actlab(self.resolved)

    def _seeded(self, instantiate: Callable[[Any], Any], value: Any) -> Any:
        seed_generators(self.config[sections.SEED])
        return instantiate(value)

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the Trainer with actlab's callbacks and, without a plugin, atomic checkpoints."""
        # Reject what barebones turns off
        arguments = self.config_init.trainer
        if arguments.barebones and (arguments.callbacks or arguments.logger):
            raise ActlabError(
                "trainer.barebones excludes loggers and checkpoints. Set trainer.logger and "
                "trainer.callbacks to null."
            )

        # Lightning and the user's classes check the other arguments
        try:
            trainer = super().instantiate_trainer(**kwargs)
        except (ModuleNotFoundError, RuntimeError, TypeError, ValueError) as error:
            raise ActlabError(f"trainer: {one_line(error)}") from error

        # The default of Lightning is replaced; a user states any other as a plugin
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()

        # Callbacks of actlab, before all others
        callbacks: list[Any] = [StopOnSignal(), PlannedLength()]
        if not isinstance(self.model, Training):  # tasks do both themselves
            callbacks += [CompleteCheckpoint(), Unfused()]
        if self.seeds_globally:
            callbacks += [SeedEveryEpoch(self.config[sections.SEED]), StateOutside()]
        trainer.callbacks[:0] = callbacks  # type: ignore[attr-defined]
        return trainer


class ConfigCLI(ActlabCLI):
    """`ActlabCLI` for a nested config, whose sections are parsed from a cache."""

    def setup_parser(
        self, add_subcommands: bool, main_kwargs: Any, subparser_kwargs: Any
    ) -> None:
        """Create the parser of all sections, with links from the data for omitted shapes."""
        # A copy, because links change the parser, which all configs share.
        self.parser = copy.deepcopy(parser_of("trainer", *sections.SECTIONS))
        self.link_shapes(self.parser)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse each section to the types of its class."""
        self.config = resolved(self.stated, self.trainer_defaults, self.linked)


def shape_for(
    model: type, arguments: Mapping[str, Any], name: str, data: pl.LightningDataModule
) -> Any:
    """Return a shape of the data, such as ``num_classes``, which a model's config omits."""
    if name not in arguments:
        return None
    # The data decide, since they have been read
    shape = getattr(data, name, None)
    if shape is not None:
        return shape
    if issubclass(model, Task) or arguments[name] is None:
        # A task's default need not fit the data.
        raise ActlabError(
            f"{type(data).__qualname__} has no {name}. Set model.{name} in the config."
        )
    return arguments[name]


def _check_callbacks(callbacks: Sequence[Any]) -> None:
    for callback in callbacks:
        for kind, reason in _UNRECORDED.items():
            if isinstance(callback, kind):
                raise ActlabError(f"{type(callback).__name__} {reason}")


def check_shape(name: str, stated: Any, data: pl.LightningDataModule) -> None:
    """Reject a shape in the config of a task that differs from the data's shape, if it has one."""
    shape = getattr(data, name, None)
    if stated is None or shape is None:
        return

    # Lists and tuples of equal numbers are equal
    is_equal = stated == shape
    if isinstance(stated, Sequence) and shape:
        is_equal = list(stated) == list(shape)
    if not is_equal:
        raise ActlabError(
            f"model.{name}: expected {shape!r}, as {type(data).__qualname__} has, got {stated!r}. "
            f"Remove model.{name}."
        )


class Experiment(NamedTuple):
    """The three objects of one run."""

    trainer: pl.Trainer
    task: pl.LightningModule
    data: pl.LightningDataModule

    def attach(self) -> None:
        """Attach the Trainer to the data and the task to the Trainer, as a fit does.

        Hooks of the data may use the Trainer. The task gets no Trainer: it would log into a loop,
        and no loop runs.
        """
        self.data.trainer = self.trainer
        trainer: Any = self.trainer  # Lightning sets the attribute elsewhere
        # As Lightning does at the start of a fit
        trainer.datamodule = self.data
        self.trainer.strategy.connect(self.task)

    def training_loader(self) -> Any:
        """Prepare the data and return their loader, or loaders, of training batches."""
        self.attach()
        prepare(self.data)
        self.data.setup("fit")
        return self.data.train_dataloader()

    def updates_per_epoch(self) -> int | None:
        """Prepare the data and return the number of training batches; None if it is unknown."""
        return number_of_batches(
            self.training_loader(), self.trainer.limit_train_batches
        )


def number_of_batches(loader: Any, limit: int | float) -> int | None:
    """Return how many batches a Trainer takes from one or several loaders; None if unknown.

    ``limit`` is a number or a share of the batches of each loader.
    """
    if isinstance(loader, CombinedLoader):
        # A copy, because the loaders in it are replaced below
        combined = copy.copy(loader)
    else:
        combined = CombinedLoader(loader, "max_size_cycle")

    # Numbers instead of batches: the loaders themselves may start processes
    parts = []
    for part in combined.flattened:
        length = sized_len(part)
        if length is None:
            return None
        if isinstance(limit, int):
            number = min(length, limit)
        else:
            number = int(length * limit)
        parts.append(range(number))

    # Lightning combines the numbers as it combines batches
    combined.flattened, combined.limits = parts, None
    return len(iter(combined))


@signals.preparing()
def prepare(data: pl.LightningDataModule) -> None:
    """Prepare data; the process reports progress meanwhile."""
    data.prepare_data()


def data_of(config: Mapping[str, Any]) -> pl.LightningDataModule:
    """Instantiate only the data of a complete config."""
    seed = run_seed(config.get(sections.SEED, 0))
    parsed: Any = Namespace(data=typed(config, "data", seed))  # type: ignore[no-untyped-call]
    data: pl.LightningDataModule = parser_of("data").instantiate(parsed).data
    return data


def build(
    config: Mapping[str, Any],
    digests: ContentsByText | None = None,
    **trainer_defaults: Any,
) -> Experiment:
    """Instantiate a complete LightningCLI config, as nested values, without running it.

    Args:
        config: nested values, with the import paths of classes; see
            `actlab.config.class_paths.with_import_paths`.
        digests: computed digests of files and code, to which new ones are added. None leaves them
            out of the record, for a task that writes no checkpoint.
        **trainer_defaults: Trainer arguments for keys that the config does not set. They override
            `OF_TRAINER`.
    """
    values = {key: value for key, value in config.items() if value is not None}
    sections.check(values)
    with messages.one_line_errors(values):
        cli = ConfigCLI(values, values, digests, **{**OF_TRAINER, **trainer_defaults})
    return Experiment(cli.trainer, cli.model, cli.datamodule)
