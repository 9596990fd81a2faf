"""The datamodule of numbered samples: in a Trainer, by hand, on devices, with parts of any kind."""

import warnings
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BasePredictionWriter
from pytorch_lightning.trainer.states import RunningStage
from torch import Tensor
from torch.utils.data import DataLoader

from actlab.callbacks import TestEveryEpoch
from actlab.datamodules import (
    CIFARDataModule,
    MNISTDataModule,
    PixelDataModule,
    SquareDataModule,
    TableDataModule,
    TextDataModule,
    TwitterPOSDataModule,
)
from actlab.datamodules.base import Batch, Samples, TensorDataModule, TensorDataset
from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.random.positions import Position
from toys import BATCH, QUIET, SIZE, batches_of, same


class Numbers(TensorDataModule):
    """The numbers 0 … 49 as samples and as labels."""

    num_classes, input_shape = SIZE, (1,)

    def load(self, device: torch.device) -> None:
        values = torch.arange(SIZE, device=device)
        self.train = self.val = self.test = TensorDataset(values.view(-1, 1).float(), values)


class Witness(pl.LightningModule):
    """Remembers the labels of all training batches by epoch, and evaluated ones; learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: dict[int, list[Tensor]] = {}
        self.evaluated: list[Tensor] = []

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        self.seen.setdefault(self.current_epoch, []).append(batch[1].clone())
        loss: Tensor = self.layer(batch[0]).mean()
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        self.evaluated.append(batch[1].clone())

    test_step = validation_step

    def predict_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[1]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.0)


def trainer(folder: Any, **options: Any) -> pl.Trainer:
    return pl.Trainer(default_root_dir=folder, **QUIET, **options)


@pytest.fixture(autouse=True)
def _lightning_hints() -> None:
    """The command line silences this hint too: batches of tensors in memory need no workers."""
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*log_every_n_steps.*")


def test_trainer_sees_a_new_order_each_epoch_and_the_same_after_a_resume(tmp_path):
    whole, first, second = Witness(), Witness(), Witness()
    trainer(tmp_path, max_epochs=3).fit(whole, datamodule=Numbers(BATCH, 20, 3))
    for epoch in range(3):
        assert same(whole.seen[epoch], batches_of(3, epoch))
    assert torch.equal(torch.cat(whole.evaluated[:3]), torch.arange(SIZE))

    checkpoint = tmp_path / "first.ckpt"
    run = trainer(tmp_path, max_epochs=1)
    run.fit(first, datamodule=Numbers(BATCH, 20, 3))
    run.save_checkpoint(checkpoint)
    trainer(tmp_path, max_epochs=3).fit(
        second, datamodule=Numbers(BATCH, 20, 3), ckpt_path=checkpoint
    )
    assert sorted(second.seen) == [1, 2]
    assert all(same(second.seen[epoch], whole.seen[epoch]) for epoch in (1, 2))


def test_trainer_gets_stacked_batches_and_whole_test_and_prediction_sets(tmp_path):
    data, witness = Numbers(BATCH, 20, 0), Witness()
    data.seed = [3, 4]
    run = trainer(tmp_path, max_epochs=1)
    run.fit(witness, datamodule=data)
    assert same(witness.seen[0], batches_of([3, 4], 0))
    witness.evaluated.clear()
    run.test(witness, datamodule=data, verbose=False)
    assert torch.equal(torch.cat(witness.evaluated), torch.arange(SIZE))
    predictions = run.predict(witness, datamodule=data)
    assert torch.equal(torch.cat(predictions), torch.arange(SIZE))  # type: ignore[arg-type]


def test_every_epoch_is_tested_on_the_whole_test_set(tmp_path):
    witness = Witness()
    run = trainer(tmp_path, max_epochs=2, limit_val_batches=0, callbacks=[TestEveryEpoch()])
    run.fit(witness, datamodule=Numbers(BATCH, 20, 3))
    assert torch.equal(torch.cat(witness.evaluated), torch.arange(SIZE).repeat(2))


@pytest.mark.parametrize(
    ("options", "tested"),
    [
        ({"limit_test_batches": 2}, 40),
        ({"limit_test_batches": 0.4}, 20),
        ({"limit_test_batches": 0}, 0),
        ({"fast_dev_run": True}, 20),
    ],
)
def test_every_epoch_is_tested_on_as_many_batches_as_the_trainer_tests(options, tested, tmp_path):
    class Tested(Witness):
        tested = 0

        def test_step(self, batch, number):
            self.tested += len(batch[1])

    witness = Tested()
    run = trainer(
        tmp_path, max_epochs=1, limit_val_batches=0, callbacks=[TestEveryEpoch()], **options
    )
    run.fit(witness, datamodule=Numbers(BATCH, 20, 3))
    assert witness.tested == tested
    if tested:
        run.test(witness, datamodule=Numbers(BATCH, 20, 3), verbose=False)
        assert witness.tested == 2 * tested


def test_a_fraction_of_less_than_a_test_batch_is_one_line(tmp_path):
    limits = {"limit_val_batches": 0, "limit_test_batches": 0.1}
    run = trainer(tmp_path, max_epochs=1, callbacks=[TestEveryEpoch()], **limits)

    class Tested(Witness):
        tested_by_steps = True  # as tasks declare; for others it is Lightning's line

    with pytest.raises(
        ActlabError,
        match=r"limit_test_batches: expected at least one of 3 batches, got 0\.1\. .* 0\.333",
    ):
        run.fit(Tested(), datamodule=Numbers(BATCH, 20, 3))


class Writer(BasePredictionWriter):
    """Remembers what a prediction writer is told of each batch."""

    def __init__(self) -> None:
        super().__init__("batch")
        self.told: list[Any] = []

    def write_on_batch_end(self, *given: Any) -> None:
        self.told.append(given[3])


def test_the_prediction_writer_receives_the_positions(tmp_path):
    writer = Writer()
    trainer(tmp_path, callbacks=[writer]).predict(
        Witness(), datamodule=Numbers(BATCH, 20, 0), return_predictions=False
    )
    assert torch.equal(torch.cat([position.index for position in writer.told]), torch.arange(SIZE))


class Plain(pl.LightningDataModule):
    """As other projects write it: nothing about devices."""

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(torch.arange(SIZE), BATCH, shuffle=True)  # type: ignore[arg-type]


class Ours(Numbers):
    def __init__(self) -> None:
        super().__init__(BATCH, 20, 0)


class OwnLoader(Ours):
    """Of actlab's base, with a training loader of its own."""

    train_dataloader = Plain.train_dataloader


def labels_on(rank: int, data: type, **trainer: Any) -> list[int]:
    """The training labels that a device of two gets from Lightning."""
    return labels(loader_on(rank, data, "train", **trainer))


def labels(loader: Any) -> list[int]:
    return torch.cat([batch[1] if isinstance(batch, tuple) else batch for batch in loader]).tolist()


def loader_on(rank: int, data: type, part: str, **trainer: Any) -> Any:
    """A loader of a device of two, as Lightning's loops get it."""
    two = {"devices": 2, "accelerator": "cpu", "strategy": "ddp", **trainer}
    config = {
        "model": {"class_path": f"{__name__}.Witness"},
        "data": {"class_path": f"{__name__}.{data.__name__}"},
        "trainer": two,
    }
    run = build(config)
    run.data.trainer = run.trainer
    run.trainer.strategy.cluster_environment.set_global_rank(rank)  # type: ignore[attr-defined]
    run.trainer.strategy.connect(run.task)
    run.data.setup("fit")
    loader: Any = getattr(run.data, f"{part}_dataloader")()
    return run.trainer._data_connector._prepare_dataloader(
        loader, part == "train", RunningStage.TRAINING
    )


@pytest.mark.parametrize("data", [Plain, OwnLoader, Ours])
def test_two_devices_train_on_different_samples(data):
    first, second = labels_on(0, data), labels_on(1, data)
    assert set(first).isdisjoint(second)
    assert len({*first, *second}) == (SIZE if data is not Ours else SIZE // BATCH * BATCH)


def test_what_a_config_says_of_the_sampler_holds():
    off = [labels_on(rank, Plain, use_distributed_sampler=False) for rank in (0, 1)]
    assert [sorted(labels) for labels in off] == [list(range(SIZE))] * 2


@pytest.mark.parametrize("sampler", [True, False])
def test_own_data_slices_each_batch_whatever_lightnings_sampler(sampler):
    ranks = [loader_on(rank, Ours, "train", use_distributed_sampler=sampler) for rank in (0, 1)]
    for rank, loader in enumerate(ranks):
        assert same([batch[1] for batch in loader], batches_of(0, rank=rank, world_size=2))
    for part in ("val", "test"):
        ranks = [loader_on(rank, Ours, part, use_distributed_sampler=sampler) for rank in (0, 1)]
        assert [sorted(labels(loader))[:3] for loader in ranks] == [[0, 1, 2], [10, 11, 12]]
        assert sorted(labels(ranks[0]) + labels(ranks[1])) == list(range(SIZE))


@pytest.mark.parametrize(("training", "evaluation"), [(0, 5), (5, 0), (-1, 5)])
def test_batch_sizes_must_be_positive(training, evaluation):
    with pytest.raises(
        ActlabError, match="batch_size: expected a number greater than or equal to 1"
    ):
        Numbers(training, evaluation, 0)


class Squares(Samples):
    """No tensor dataset: makes its samples from their numbers."""

    device = torch.device("cpu")

    def __len__(self) -> int:
        return SIZE

    def batch(self, position: Position) -> Batch:
        return position.index.unsqueeze(-1).float() ** 2, position.index


class OtherSource(Numbers):
    """Has a training part of another class than the others."""

    def load(self, device: torch.device) -> None:
        super().load(device)
        self.train: Samples | None = Squares()


def test_samples_of_any_class_serve(tmp_path):
    witness, data = Witness(), OtherSource(BATCH, 20, 3)
    trainer(tmp_path, max_epochs=1).fit(witness, datamodule=data)
    assert same(witness.seen[0], batches_of(3))
    for x, y in data.train_dataloader():
        assert torch.equal(x[:, 0], y.float() ** 2)


def test_data_is_loaded_again_only_for_another_device():
    data = Numbers(BATCH, 20, 3)
    data.setup("fit")
    first = data.train
    data.setup("test")
    assert data.train is first
    data.train = TensorDataset(torch.zeros(SIZE, device="meta"))
    data.setup("test")
    assert data.train.device.type == "cpu"


@pytest.mark.parametrize("missing", ["load", "input_shape"])
def test_incomplete_datamodule_fails_at_construction(missing):
    given = {"load": Numbers.load, "num_classes": 2, "input_shape": (1,)}
    del given[missing]
    incomplete = type("Incomplete", (TensorDataModule,), given)
    with pytest.raises(TypeError, match=f"abstract class Incomplete .*{missing}"):
        incomplete(BATCH, 20, 0)


def test_part_that_was_not_loaded_is_named():
    class TrainOnly(Numbers):
        def load(self, device: torch.device) -> None:
            super().load(device)
            self.val = None

    with pytest.raises(
        ActlabError, match=r"TrainOnly has no val samples\. Set train, val and test in `load`"
    ):
        TrainOnly(BATCH, 20, 0).val_dataloader()


FEW = {"batch_size": 6, "updates_per_epoch": 3}
AUGMENTED = {"sample": True, "preprocessing": ["scale"], "crop": 4, "noise": 0.15}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MNISTDataModule, {"sample": True}),
        (CIFARDataModule, {**AUGMENTED, "flip": "random"}),
        (CIFARDataModule, {**AUGMENTED, "flip": "both"}),
        (TextDataModule, {**FEW, "sample": True}),
        (TwitterPOSDataModule, {"sample": True}),
        (TableDataModule, {"sample": True}),
        (PixelDataModule, {**FEW, "sample": True}),
        (SquareDataModule, FEW),
    ],
)
def test_stacked_batches_are_those_of_each_seed_alone(kind, options):
    stack = kind(**options)
    stack.seed = [5, 11]
    assert stack.stackable
    together = [*stack.train_dataloader()]
    for member, seed in enumerate(stack.seed):
        for alone, both in zip(
            kind(**options, seed=seed).train_dataloader(), together, strict=True
        ):
            assert all(
                torch.equal(part, of_both[member])
                for part, of_both in zip(alone, both, strict=True)
            )


def test_a_users_datamodule_may_be_stacked_unless_its_loader_is_its_own():
    """What it loads may depend on the seed, of which a stack has several: that is tried."""

    class OwnTraining(Numbers):
        def train_dataloader(self) -> Any:
            return super().train_dataloader()

    assert Numbers(BATCH, 20, 0).stackable
    assert not OwnTraining(BATCH, 20, 0).stackable
