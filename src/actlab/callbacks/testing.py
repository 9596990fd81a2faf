"""Test after training epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, ProgressBar
from pytorch_lightning.trainer.states import RunningStage, TrainerFn
from pytorch_lightning.utilities.model_helpers import is_overridden

from actlab.callbacks.evaluation import evaluation_mode, reduce_logged
from actlab.callbacks.seeding import SeedEveryEpoch
from actlab.callbacks.weight_averaging import averaged_weights
from actlab.config.batches import limited
from actlab.errors import ActlabError
from actlab.random.seeding import Generators, own_generators
from actlab.validation import Count, validated

_HOOKS = [name for name in dir(Callback) if name.startswith("on_test_")]


class TestEveryEpoch(Callback):
    """Log ``test/…`` after training epochs, for test curves as in the papers; they select nothing.

    The result is what ``trainer.test`` returns after seeding the global generators by the run's
    seed (of `SeedEveryEpoch`, or else the seed given to torch last): all hooks of testing are
    called, ``setup("test")`` once before the first test. Training continues as if there had been no
    test.
    With the callback `WeightAveraging`, averaged weights are tested, as in a validation.

    Args:
        every_n_epochs: test only after every n-th epoch, and after the last.

    Raises:
        ActlabError: if a module that can be tested has no ``test_dataloader``, or if its
            ``setup("test")`` replaces parameters.
    """

    __test__ = False  # pytest would collect the class because of its name
    splits = ("test",)  # splits whose metrics are logged
    stackable = True  # stacks have the same hooks, and log the metrics themselves

    @validated
    def __init__(self, every_n_epochs: Count = 1) -> None:
        self.every_n_epochs = every_n_epochs
        self._generators: Generators | None = None  # their states after `setup("test")`

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check before training that there is a test set."""
        data = trainer.datamodule or pl_module  # type: ignore[attr-defined]
        is_tested = stage == "fit" and is_overridden("test_step", pl_module)
        if is_tested and not is_overridden("test_dataloader", data):
            raise ActlabError(
                f"TestEveryEpoch requires a test set, but {type(data).__name__} has no "
                "test_dataloader. Define it, or remove actlab.callbacks.TestEveryEpoch from "
                "trainer.callbacks."
            )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluate on the test set and log, with the weights that a validation has."""
        # The last epoch is always due
        epochs = trainer.current_epoch + 1
        is_due = epochs % self.every_n_epochs == 0 or epochs == trainer.max_epochs
        if not (
            is_due
            and trainer.limit_test_batches
            and is_overridden("test_step", pl_module)
        ):
            return

        # Steps suffice if all parts declare it
        with averaged_weights(trainer, pl_module):
            if _is_tested_by_steps(trainer, pl_module):
                self._step(trainer, pl_module)
            else:
                self._run_loop(trainer, pl_module)
        reduce_logged(trainer)

    def _step(self, trainer: Trainer, module: LightningModule) -> None:
        """Call the steps alone, with no other hook of testing."""
        loader = trainer.datamodule.test_dataloader()  # type: ignore[attr-defined]
        if loader == []:  # there is no test set
            return
        with evaluation_mode(trainer, module) as place:
            batches = limited(
                loader, trainer.limit_test_batches, "trainer.limit_test_batches"
            )
            for number, batch in enumerate(batches):
                module.test_step(place(batch), number)
        module.on_test_epoch_end()

    def _run_loop(self, trainer: Trainer, module: LightningModule) -> None:
        """Run the Trainer's test loop, then restore what it changes."""
        loop = trainer.test_loop
        connector = trainer._logger_connector
        steps = trainer.fit_loop.epoch_loop
        replaced: list[tuple[Any, str, Any]] = [
            (trainer.state, "fn", TrainerFn.TESTING),
            (trainer.state, "stage", RunningStage.TESTING),
            (loop, "verbose", False),
            (
                loop,
                "inference_mode",
                False,
            ),  # tensors that a module keeps are used in training
            # As where Lightning logs epochs
            (steps, "_batches_that_stepped", steps._batches_that_stepped - 1),
            (connector, "_first_loop_iter", None),
            (connector, "_current_fx", None),
        ]
        if hasattr(trainer, "_last_val_time"):
            replaced.append((trainer, "_last_val_time", trainer._last_val_time))

        # Set up once; every test draws the same numbers
        with own_generators(_seed_of(trainer)), _attributes(replaced):
            if self._generators is None:
                self._set_up(trainer, module)
                self._generators = Generators.now()
            self._generators.restore()
            loop.run()

    @staticmethod
    def _set_up(trainer: Trainer, module: LightningModule) -> None:
        """Prepare the data and call ``setup("test")``, in the order of ``trainer.test``."""
        before = {id(parameter) for parameter in module.parameters()}
        trainer._data_connector.prepare_data()
        data = trainer.datamodule  # type: ignore[attr-defined]
        if data is not None:
            data.setup("test")
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            callback.setup(trainer, module, "test")
        module.setup("test")

        # The optimizer lacks parameters that setup('test') creates
        for name, parameter in module.named_parameters():
            if id(parameter) not in before:
                raise ActlabError(
                    f"TestEveryEpoch: setup('test') of {type(module).__name__} replaces the "
                    f"parameter {name}, which is in training. Create parameters in __init__, or "
                    "only if stage is 'fit'."
                )


def _is_tested_by_steps(trainer: Trainer, module: LightningModule) -> bool:
    """Return whether all parts declare that ``test_step`` alone does what ``trainer.test`` does."""
    parts = [module, trainer.datamodule]  # type: ignore[attr-defined]
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if not isinstance(callback, ProgressBar) and _overridden_hooks(callback):
            parts.append(callback)
    is_declared = all(getattr(part, "tested_by_steps", False) for part in parts)
    return is_declared and _overridden_hooks(module) <= {"on_test_epoch_end"}


def _overridden_hooks(part: LightningModule | Callback) -> set[str]:
    return {hook for hook in _HOOKS if is_overridden(hook, part)}


def _seed_of(trainer: Trainer) -> int:
    """Return the seed of the run."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, SeedEveryEpoch):
            return callback.seed
    return torch.initial_seed()


@contextmanager
def _attributes(replaced: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes of objects for a block."""
    former = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in former:
            setattr(owner, name, value)
