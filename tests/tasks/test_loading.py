"""Batches of torch's DataLoader in blocks: the bits, draws and contexts of single updates."""

from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

from actlab.tasks import blocks
from toys import QUIET, D, FrameTask, K, T
from updates_in_blocks import OneByOne, Sizes, check_equal

FLOAT32: dict[str, Any] = {**QUIET, "max_epochs": 2}


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Blocks end by their number of updates, not by a second."""
    monkeypatch.setattr(blocks, "LONGEST", 1e9)


class Drawn(Dataset[Any]):
    """Samples of which some draw from torch's global generator, and multiply in their type."""

    def __init__(self, size: int = 26) -> None:
        self.size = size
        self.products = torch.linspace(0.0, 1.0, T * T).view(T, T)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        noise = torch.rand(T, D) if number >= 8 else torch.full((T, D), 0.1)
        return self.products @ noise, torch.arange(T) % K, torch.ones(T)


class Loaded(pl.LightningDataModule):
    """A user's data: a new loader at each call."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {"shuffle": True, **options}

    def train_dataloader(self) -> Any:
        return DataLoader(Drawn(), batch_size=4, **self.options)

    def val_dataloader(self) -> Any:
        return DataLoader(Drawn(6), batch_size=4)


class Subsets(Loaded):
    def train_dataloader(self) -> Any:
        sampler = SubsetRandomSampler(range(20), torch.Generator().manual_seed(5))
        return DataLoader(Drawn(), 4, sampler=sampler)


def with_dropout(act: Any, outputs: int, shape: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(D, 8), act(), nn.Dropout(0.5), nn.Linear(8, outputs))


def left(data: Any, folder: Any, task: Any, *callbacks: Any, **options: Any) -> Any:
    """What a fit leaves, the next draw of the global generator, and the sizes of blocks."""
    torch.manual_seed(3)
    made, sizes = task(), Sizes()
    trainer = pl.Trainer(**{**FLOAT32, **options}, default_root_dir=folder, callbacks=[*callbacks])
    trainer.callbacks.append(sizes)  # type: ignore[attr-defined]
    trainer.fit(made, datamodule=data)
    metrics = {name: value.tolist() for name, value in trainer.callback_metrics.items()}
    counts = trainer.global_step, trainer.current_epoch, trainer.fit_loop.state_dict()
    return (made.state_dict(), metrics, counts, torch.rand(1)), sizes.seen, made


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (Loaded, {}),
        (Subsets, {}),
        (partial(Loaded, shuffle=False), {}),
        (partial(Loaded, drop_last=True, generator=None), {"val_check_interval": 2}),
        (Loaded, {"precision": "bf16-mixed"}),
        (Loaded, {"limit_train_batches": 5, "num_sanity_val_steps": 2}),
        (Loaded, {"max_steps": 9}),
        (Loaded, {"reload_dataloaders_every_n_epochs": 1}),
        (Loaded, {"overfit_batches": 3}),
    ],
    ids=[
        "shuffled",
        "sampler",
        "in order",
        "validations",
        "mixed",
        "limited",
        "max_steps",
        "reloaded",
        "overfitted",
    ],
)
@pytest.mark.filterwarnings("ignore:.*shuffl.*")
def test_batches_of_a_loader_in_blocks_leave_what_single_updates_leave(data, options, tmp_path):
    """With torch's own dropout, a smaller last batch, and samples that draw."""
    task = partial(FrameTask, network=with_dropout)
    single, ones, _ = left(data(), tmp_path, task, OneByOne(), **options)
    several, sizes, made = left(data(), tmp_path, task, **options)
    assert max(sizes) > 1 == max(ones)
    assert not made.single_updates
    check_equal(single, several)


class Strange(DataLoader[Any]):
    """A loader of a user's own, which may look at anything."""


@pytest.mark.parametrize(
    ("loader", "options"),
    [
        (partial(Strange, Drawn(), 4), {}),
        (partial(DataLoader, Drawn(), batch_sampler=[[0, 1], [2]]), {}),
        (partial(DataLoader, Drawn(), 4), {"precision": "64-true"}),
    ],
    ids=["own class", "own batch sampler", "another default type"],
)
def test_loaders_that_may_see_a_block_are_left_alone(loader, options, tmp_path):
    data = Loaded()
    data.train_dataloader = loader  # type: ignore[method-assign]
    _, sizes, _ = left(data, tmp_path, FrameTask, **options)
    assert {*sizes} == {1}


def test_a_loader_in_blocks_stays_a_loader(tmp_path):
    """Callbacks read its dataset; another module may be trained by the same Trainer and loader."""
    loader = DataLoader(Drawn(), 4, shuffle=True)
    trainer = pl.Trainer(**QUIET, max_epochs=1, default_root_dir=tmp_path)
    trainer.fit(FrameTask(), loader, DataLoader(Drawn(6), 4))
    assert isinstance(trainer.train_dataloader, DataLoader)
    assert trainer.train_dataloader.dataset is loader.dataset
    assert type(loader) is DataLoader

    class Plain(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.batches = nn.Linear(D, 1), 0

        def training_step(self, batch: Any, _: int) -> Any:
            self.batches += 1
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    plain = Plain()
    trainer.fit_loop.max_epochs = 2
    trainer.fit(plain, loader)
    assert plain.batches == len(loader)


@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_pinned_memory_is_the_loaders_own(tmp_path):
    plain, _, _ = left(Loaded(), tmp_path, FrameTask)
    pinned, sizes, _ = left(Loaded(pin_memory=True), tmp_path, FrameTask)
    assert max(sizes) > 1
    check_equal(plain, pinned)
