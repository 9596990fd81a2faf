"""A config becomes Trainer, task and data: what the command line, the engines and the probes build with."""

from __future__ import annotations

import copy
import inspect
import pydoc
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from actlab import activations
from actlab.errors import ActlabError, unknown

# Tensors are in memory and a batch is one gather: loader workers would only copy.
warnings.filterwarnings("ignore", ".*does not have many workers.*")
# Lightning 2.6 asks torch by a name that torch 2.13 deprecates.
warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


TOP_LEVEL = ("config", "seed_everything", "trainer", "model", "data", "ckpt_path", "print_config")


LINKED = {"act", "num_classes", "input_shape", "seed"}  # set by links and by the task, not by a config


class ActlabCLI(LightningCLI):
    """LightningCLI whose seed and data shapes reach task and datamodule; see `main` and `build`."""

    def __init__(
        self,
        args: list[str] | dict[str, Any],
        run: bool,
        record: type[SaveConfigCallback] | None = None,
        **trainer_defaults: Any,
    ) -> None:
        units = f"Activations: {', '.join(activations.names())}; or package.module:Unit, ./file.py:Unit."
        described = {command: {"description": units} for command in LightningCLI.subcommands()}
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
                "plugins": [{"class_path": "actlab.checkpoints.AtomicCheckpointIO"}],
                "use_distributed_sampler": False,  # our batches are sliced by rank, whatever their number
                **trainer_defaults,
            },
            args=args,
            run=run,
        )

    def before_instantiate_classes(self) -> None:
        """Tell a mistyped unit before a dataset is fetched for its shapes."""
        model = self._get(self.config, "model")
        spec = model.init_args.get("activation") if model is not None and "init_args" in model else None
        if spec is not None:
            activations.factory(spec.as_dict() if isinstance(spec, Namespace) else spec)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, without Lightning's warning that ``args`` and the words of the process are both there."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "LightningCLI's args parameter")
            super().parse_arguments(parser, args)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the seed to both sides and the data's shapes to the task."""
        parser.link_arguments("seed_everything", "model.init_args.seed", compute_fn=int)
        parser.link_arguments("seed_everything", "data.init_args.seed", compute_fn=int)
        for shape in ("num_classes", "input_shape"):
            parser.link_arguments(f"data.{shape}", f"model.init_args.{shape}", apply_on="instantiate")


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
    with one_line_errors():
        cli = ActlabCLI(copy.deepcopy(dict(config)), run=False, **{**QUIET, **trainer_defaults})
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


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn the parser's errors, and our own that it has wrapped in others, into `ActlabError`."""
    try:
        yield
    except ArgumentError as error:
        raise _own(error) or _clear(" ".join(str(error).split())) from error
    except (ValueError, TypeError) as error:
        if own := _own(error):
            raise own from error
        raise


def _clear(message: str) -> ActlabError:
    """The parser's message of many clauses as one that says what is wrong and what is allowed."""
    if match := re.search(r"(?:Option '|accept option '|[Uu]nrecognized arguments: --)([\w.]+)", message):
        classes = re.findall(r"(?:given class_path '|Got value: Namespace\(class_path=')([\w.]+)'", message)
        if not classes and match[0].startswith(("U", "u")) and not match[1].startswith("trainer."):
            return unknown("option", f"--{match[1].partition('.')[0]}", [f"--{name}" for name in TOP_LEVEL])
        owner = classes[-1] if classes else "pytorch_lightning.Trainer"
        found = pydoc.locate(owner)
        allowed = inspect.signature(found).parameters if callable(found) else ()
        keys = [name for name in allowed if name not in LINKED]
        return unknown("config key", match[1].removeprefix("trainer."), keys, f"In {owner}.")
    what, _, given = message.partition(" Given value type")
    value = given.rpartition("Given value: ")[2]
    return ActlabError(
        what.replace(" - Expected a <class 'NoneType'>", "") + f" Given: {value[:80]}" * bool(value)
    )


def _own(error: BaseException | None) -> ActlabError | None:
    """The `ActlabError` among the causes of an error."""
    while error is not None and not isinstance(error, ActlabError):
        error = error.__cause__ or error.__context__
    return error
