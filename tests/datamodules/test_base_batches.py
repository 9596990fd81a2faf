"""Tensors in memory and the order of batches."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from actlab.datamodules.base import SeededBatches, TensorDataModule, TensorDataset, as_it_is
from actlab.errors import ActlabError
from actlab.streams import generator

SIZE, BATCH = 50, 8


def batches(seed: Any = 3, epoch: int = 0, **options: Any) -> list[Tensor]:
    sampler = SeededBatches(SIZE, BATCH, seed, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def test_batch_is_gathered_for_any_shape_of_index() -> None:
    x, y = torch.arange(24).view(6, 2, 2), torch.arange(6)
    data = TensorDataset(x, y, transform=lambda x, y: (x * 10, y))
    for index in (torch.tensor([4, 1]), torch.tensor([[4, 1, 1], [0, 5, 2]])):
        images, labels = data.__getitems__(index)
        assert torch.equal(images, x[index] * 10)
        assert torch.equal(labels, y[index])
    assert torch.equal(data.__getitems__([5, 0])[1], torch.tensor([5, 0]))
    assert len(data) == 6


def test_order_is_a_function_of_seed_and_epoch_alone() -> None:
    once = batches(epoch=2)
    torch.manual_seed(12345)
    assert same(once, batches(epoch=2))
    assert not same(once, batches(epoch=1))
    assert not same(once, batches(seed=4, epoch=2))
    expected = torch.randperm(SIZE, generator=generator(3, "order", 2))
    assert torch.equal(torch.cat(once), expected[: SIZE // BATCH * BATCH])


def test_last_partial_batch_is_dropped_or_kept() -> None:
    assert [len(b) for b in batches()] == [BATCH] * 6
    kept = batches(drop_last=False)
    assert [len(b) for b in kept] == [BATCH] * 6 + [2]
    assert sorted(torch.cat(kept).tolist()) == list(range(SIZE))
    assert len(SeededBatches(SIZE, BATCH, 0)) == 6
    assert len(SeededBatches(SIZE, BATCH, 0, drop_last=False)) == 7


@pytest.mark.parametrize("seed", [3, [3, 4, 5]])
@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_hold_contiguous_slices_of_the_global_batch(seed: Any, world_size: int) -> None:
    ranks = [batches(seed, epoch=1, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert same([torch.cat(slices, dim=-1) for slices in zip(*ranks, strict=True)], batches(seed, epoch=1))


def test_member_of_a_stack_gets_the_batches_it_has_alone() -> None:
    stacked = batches([7, 3, 7], epoch=4)
    assert stacked[0].shape == (3, BATCH)
    for member, seed in enumerate((7, 3, 7)):
        assert same([batch[member] for batch in stacked], batches(seed, epoch=4))


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ActlabError, match="evenly by 3 devices"):
        SeededBatches(SIZE, BATCH, 0, world_size=3)
    with pytest.raises(ActlabError, match="has 50 samples, fewer than one batch of 64"):
        SeededBatches(SIZE, 64, 0)


def test_collate_passes_the_batch_through() -> None:
    batch = (torch.zeros(2), torch.ones(2))
    assert as_it_is(batch) is batch


class Numbers(TensorDataModule):
    """The numbers 0 … 49 as samples and as labels."""

    num_classes, input_shape = SIZE, (1,)

    def load(self, device: torch.device) -> None:
        values = torch.arange(SIZE, device=device)
        self.train = self.val = self.test = TensorDataset(values.view(-1, 1).float(), values)


class Witness(pl.LightningModule):
    """Remembers the labels of every training batch by epoch; learns nothing that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: dict[int, list[Tensor]] = {}
        self.evaluated: list[Tensor] = []

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        self.seen.setdefault(self.current_epoch, []).append(batch[1].clone())
        loss: Tensor = self.layer(batch[0]).mean()
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        self.evaluated.append(batch[1].clone())

    test_step = validation_step

    def predict_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[1]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.0)


def trainer(folder: Any, **options: Any) -> pl.Trainer:
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    return pl.Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        num_sanity_val_steps=0,
        **dict.fromkeys(off, False),
        **options,
    )


@pytest.fixture
def _lightning_hints() -> None:
    """The command line silences this hint too: batches of tensors in memory need no workers."""
    import warnings

    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*log_every_n_steps.*")


@pytest.mark.usefixtures("_lightning_hints")
def test_trainer_sees_a_new_order_each_epoch_and_the_same_after_a_resume(tmp_path: Any) -> None:
    whole, first, second = Witness(), Witness(), Witness()
    trainer(tmp_path, max_epochs=3).fit(whole, datamodule=Numbers(BATCH, 20, 3))
    for epoch in range(3):
        assert same(whole.seen[epoch], batches(3, epoch))
    assert torch.equal(torch.cat(whole.evaluated[:3]), torch.arange(SIZE))

    checkpoint = tmp_path / "first.ckpt"
    run = trainer(tmp_path, max_epochs=1)
    run.fit(first, datamodule=Numbers(BATCH, 20, 3))
    run.save_checkpoint(checkpoint)
    trainer(tmp_path, max_epochs=3).fit(second, datamodule=Numbers(BATCH, 20, 3), ckpt_path=checkpoint)
    assert sorted(second.seen) == [1, 2]
    assert all(same(second.seen[epoch], whole.seen[epoch]) for epoch in (1, 2))


@pytest.mark.usefixtures("_lightning_hints")
def test_trainer_gets_stacked_batches_and_whole_test_and_prediction_sets(tmp_path: Any) -> None:
    data, witness = Numbers(BATCH, 20, 0), Witness()
    data.seed = [3, 4]
    run = trainer(tmp_path, max_epochs=1)
    run.fit(witness, datamodule=data)
    assert same(witness.seen[0], batches([3, 4], 0))
    witness.evaluated.clear()
    run.test(witness, datamodule=data, verbose=False)
    assert torch.equal(torch.cat(witness.evaluated), torch.arange(SIZE))
    predictions = run.predict(witness, datamodule=data)
    assert torch.equal(torch.cat(predictions), torch.arange(SIZE))  # type: ignore[arg-type]


class TwoDevices:
    """What the datamodule asks of a Trainer, as rank 1 of 2 has it; a real one would start a process."""

    class _Connector:
        use_distributed_sampler = True

    class _Strategy:
        root_device = torch.device("cpu")

    world_size, global_rank = 2, 1
    _accelerator_connector, strategy = _Connector(), _Strategy()


def test_several_devices_need_lightnings_sampler_off(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Numbers(BATCH, 20, 3)
    data.trainer = TwoDevices()  # type: ignore[assignment]
    with pytest.raises(ActlabError, match=r"set trainer\.use_distributed_sampler to false"):
        data.setup("fit")
    monkeypatch.setattr(TwoDevices._Connector, "use_distributed_sampler", False)
    data.setup("fit")
    labels = [batch[1] for batch in data.train_dataloader()]
    assert same(labels, batches(3, rank=1, world_size=2))
    assert torch.equal(torch.cat([batch[1] for batch in data.val_dataloader()]), torch.arange(SIZE))


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (-1, 5)])
def test_batch_sizes_must_be_positive(sizes: tuple[int, int]) -> None:
    with pytest.raises(ActlabError, match="give a whole number from 1"):
        Numbers(*sizes, 0)
