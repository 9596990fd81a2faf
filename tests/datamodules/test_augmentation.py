"""A training transform that draws: the same batches alone, in a stack, on two devices and after a resume."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from actlab.datamodules.base import Batch, SeededBatches, TensorDataModule, TensorDataset
from actlab.random.positions import Position, integers_at, normal_at, uniform_at

SIZE, BATCH, WIDTH, CROP = 40, 8, 6, 4
SIGNALS = torch.arange(SIZE * WIDTH, dtype=torch.float32).view(SIZE, WIDTH)


def augmented(batch: Batch, position: Position) -> Batch:
    """Signals ``(…, W)`` flipped half of the time, a window of them, and noise on it; numbers stay."""
    signals, numbers = batch
    flip = uniform_at(position, "flip") < 0.5
    signals = torch.where(flip.unsqueeze(-1), signals.flip(-1), signals)
    first = integers_at(position, "crop", WIDTH - CROP + 1)
    signals = signals.gather(-1, first.unsqueeze(-1) + torch.arange(CROP, device=first.device))
    return signals + 0.1 * normal_at(position, "noise", (CROP,)), numbers


def window(batch: Batch, position: Position) -> Batch:
    signals, numbers = batch
    return signals[..., 1 : 1 + CROP], numbers


class Signals(TensorDataModule):
    num_classes, input_shape = SIZE, (CROP,)

    def load(self, device: torch.device) -> None:
        tensors = SIGNALS.to(device), torch.arange(SIZE, device=device)
        self.train = TensorDataset(*tensors, transform=augmented)
        self.val = self.test = TensorDataset(*tensors, transform=window)


class Device:
    """What the datamodule asks of a Trainer, as one of two devices has it; a real one would start a process."""

    class _Strategy:
        root_device = torch.device("cpu")

    world_size = 2
    strategy = _Strategy()

    def __init__(self, rank: int) -> None:
        self.global_rank = rank


def epoch_of(seed: Any, epoch: int, rank: int | None = None) -> list[Batch]:
    """The training batches of an epoch that a fresh datamodule gives, as after a resume."""
    data = Signals(BATCH, 15, 0)
    data.seed = seed
    if rank is not None:
        data.trainer = Device(rank)  # type: ignore[assignment]
    loader: Any = data.train_dataloader()
    assert isinstance(loader.batch_sampler, SeededBatches)
    loader.batch_sampler.set_epoch(epoch)
    return list(loader)


def by_hand(seed: int, epoch: int, number: int) -> Tensor:
    """One sample, with numpy around what it draws on its own."""
    position = Position((seed,), epoch, torch.tensor([number]))
    signal = SIGNALS[number].numpy()
    if uniform_at(position, "flip").item() < 0.5:
        signal = signal[::-1]
    first = int(integers_at(position, "crop", WIDTH - CROP + 1))
    noise = 0.1 * normal_at(position, "noise", (CROP,))[0]
    return torch.from_numpy(signal[first : first + CROP].copy()) + noise


def assert_same(first: list[Batch], second: list[Batch]) -> None:
    for one, other in zip(first, second, strict=True):
        assert all(map(torch.equal, one, other))


def test_each_sample_is_changed_as_its_position_says() -> None:
    for signals, numbers in epoch_of(5, 2):
        for signal, number in zip(signals, numbers.tolist(), strict=True):
            assert torch.equal(signal, by_hand(5, 2, number))


def test_no_sample_is_the_same_in_another_epoch_or_under_another_seed() -> None:
    def in_order(seed: int, epoch: int) -> np.ndarray:
        signals, numbers = (torch.cat(parts) for parts in zip(*epoch_of(seed, epoch), strict=True))
        return signals[numbers.argsort()].numpy()

    assert not np.isclose(in_order(5, 0), in_order(5, 1)).all(-1).any()
    assert not np.isclose(in_order(5, 0), in_order(6, 0)).all(-1).any()


@pytest.mark.parametrize("epoch", [0, 2])
def test_member_of_a_stack_gets_the_batches_it_has_alone(epoch: int) -> None:
    seeds = [5, 11, 5]
    stacked = epoch_of(seeds, epoch)
    assert stacked[0][0].shape == (3, BATCH, CROP)
    for member, seed in enumerate(seeds):
        assert_same([(x[member], y[member]) for x, y in stacked], epoch_of(seed, epoch))


@pytest.mark.parametrize("seed", [5, [5, 11]])
def test_two_devices_hold_the_halves_of_each_batch(seed: Any) -> None:
    halves = zip(epoch_of(seed, 1, rank=0), epoch_of(seed, 1, rank=1), strict=True)
    joined: list[Batch] = [
        (torch.cat((x, other_x), dim=-2), torch.cat((y, other_y), dim=-1))
        for (x, y), (other_x, other_y) in halves
    ]
    assert_same(joined, epoch_of(seed, 1))


def test_resumed_epoch_is_the_one_that_a_whole_run_has() -> None:
    data = Signals(BATCH, 15, 5)
    loader = data.train_dataloader()
    torch.manual_seed(1234)
    for epoch in range(3):
        loader.batch_sampler.set_epoch(epoch)  # as Lightning does
        whole = list(loader)
        torch.rand(7)
    assert_same(whole, epoch_of(5, 2))


def test_evaluation_is_untouched() -> None:
    data = Signals(BATCH, 15, 5)
    data.seed = [5, 11]
    for loader in (data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()):
        signals, numbers = (torch.cat(parts) for parts in zip(*loader, strict=True))
        assert torch.equal(signals, SIGNALS[:, 1 : 1 + CROP])
        assert torch.equal(numbers, torch.arange(SIZE))


def test_evaluation_draws_the_same_for_every_seed_and_size_of_batches() -> None:
    def noisy(seed: Any, size: int) -> Tensor:
        data = Signals(BATCH, size, 0)
        data.seed = seed
        data.setup("test")
        data.test = TensorDataset(SIGNALS, torch.arange(SIZE), transform=augmented)
        return torch.cat([signals for signals, _ in data.test_dataloader()])

    assert torch.equal(noisy(5, 15), noisy([1, 2, 3], 15))
    assert torch.equal(noisy(5, 15), noisy(5, 40))
