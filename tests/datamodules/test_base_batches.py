"""Datasets of tensors, and samplers that say which samples a batch holds."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, Subset

from actlab.datamodules.base import Batch, TensorDataset
from actlab.datamodules.samplers import BatchesInOrder, SeededBatches
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.random.positions import Position, normal_at
from toys import BATCH, SIZE, Frames, batches_of, positions_of, same


def at(index: Any, seeds: tuple[int, ...] = (3,), epoch: int = 0) -> Position:
    return Position(seeds, epoch, torch.as_tensor(index))


def test_batch_is_gathered_for_any_shape_of_index():
    x, y = torch.arange(24).view(6, 2, 2), torch.arange(6)
    data = TensorDataset(x, y, transform=lambda batch, position: (batch[0] * 10, *batch[1:]))
    for index in (torch.tensor([4, 1]), torch.tensor([[4, 1, 1], [0, 5, 2]])):
        images, labels = data.__getitems__(at(index))
        assert torch.equal(images, x[index] * 10)
        assert torch.equal(labels, y[index])
    assert (len(data), data.device, data.tensors) == (6, torch.device("cpu"), (x, y))


def test_transform_may_work_in_place():
    x = torch.arange(6.0)
    data = TensorDataset(x, transform=lambda batch, position: (batch[0].mul_(10),))
    for position in BatchesInOrder(SequentialSampler(data), 3, drop_last=False):
        data.__getitems__(position)
    assert torch.equal(x, torch.arange(6.0))


def test_transform_gets_the_position_with_its_index_on_the_device_of_the_data():
    seen: list[Position] = []

    def remember(batch: Batch, position: Position) -> Batch:
        seen.append(position)
        return batch

    position = at([[4, 1], [0, 0]], (8, 9), 7)
    TensorDataset(torch.arange(6), transform=remember).__getitems__(position)
    TensorDataset(torch.arange(6, device="meta"), transform=remember).__getitems__(position)
    here, there = seen
    assert torch.equal(here.index, position.index)
    assert there.index.device.type == "meta"
    assert here[:2] == there[:2] == ((8, 9), 7)


def test_tensors_of_one_length_are_needed():
    with pytest.raises(ActlabError, match=r"equal length, got lengths \[6, 5\]"):
        TensorDataset(torch.zeros(6), torch.zeros(5))


def test_a_stock_loader_and_a_subset_give_samples_augmented_as_in_the_first_epoch():
    def noisy(batch: Batch, position: Position) -> Batch:
        return batch[0] + normal_at(position, "noise"), *batch[1:]

    data = TensorDataset(torch.arange(6.0), torch.arange(6), transform=noisy)
    data.seed = 3
    expected = data.__getitems__(at(torch.arange(6)))[0]
    for number in (0, 5, -1):
        value, label = data[number]
        assert (value, int(label)) == (expected[number], number % 6)
    with pytest.raises(IndexError):
        data[6]
    batches = [*DataLoader(data, batch_size=4), *DataLoader(Subset(data, [5, 2]), batch_size=2)]
    numbers = torch.cat([labels for _, labels in batches])
    assert numbers.tolist() == [0, 1, 2, 3, 4, 5, 5, 2]
    assert torch.equal(torch.cat([values for values, _ in batches]), expected[numbers])


def test_order_is_a_function_of_seed_and_epoch_alone():
    once = batches_of(epoch=2)
    torch.manual_seed(12345)
    assert same(once, batches_of(epoch=2))
    assert not same(once, batches_of(epoch=1))
    assert not same(once, batches_of(seed=4, epoch=2))
    expected = torch.randperm(SIZE, generator=generator(3, "order", 2))
    assert torch.equal(torch.cat(once), expected[: SIZE // BATCH * BATCH])


def test_position_has_the_seeds_and_the_epoch():
    assert all(position[:2] == ((3,), 2) for position in positions_of(3, 2))
    assert all(
        position[:2] == ((7, 3, 7), 2)
        for position in positions_of([7, 3, 7], 2, rank=1, world_size=2)
    )


@pytest.mark.parametrize("seed", [3, [3, 4, 5]])
@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_hold_contiguous_slices_of_the_global_batch(seed, world_size):
    ranks = [
        batches_of(seed, epoch=1, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    assert same(
        [torch.cat(slices, dim=-1) for slices in zip(*ranks, strict=True)],
        batches_of(seed, epoch=1),
    )


def test_member_of_a_stack_gets_the_batches_it_has_alone():
    stacked = batches_of([7, 3, 7], epoch=4)
    assert stacked[0].shape == (3, BATCH)
    for member, seed in enumerate((7, 3, 7)):
        assert same([batch[member] for batch in stacked], batches_of(seed, epoch=4))


def test_evaluation_is_in_order_at_one_position_for_all():
    in_order = BatchesInOrder(SequentialSampler(range(SIZE)), 20, drop_last=False)
    positions = list(in_order)
    assert [len(position.index) for position in positions] == [20, 20, 10]
    assert torch.equal(torch.cat([position.index for position in positions]), torch.arange(SIZE))
    assert all(position[:2] == ((0,), 0) for position in positions)
    assert len(in_order) == 3


@pytest.mark.parametrize("size", [50, 49, 41, 8, 3])
def test_each_device_evaluates_its_part_of_each_batch(size):
    """The last batch of one sample cannot be divided: it is part of the batch before it."""
    ranks = [BatchesInOrder(SequentialSampler(range(size)), 8, False, rank, 3) for rank in range(3)]
    parts = [[position.index for position in in_order] for in_order in ranks]
    assert [len(of_rank) for of_rank in parts] == [len(in_order) for in_order in ranks]
    assert all(part.numel() for of_rank in parts for part in of_rank)
    batches = [torch.cat(slices) for slices in zip(*parts, strict=True)]
    assert torch.equal(torch.cat(batches), torch.arange(size))
    assert all(len(batch) == 8 for batch in batches[:-1])


@pytest.mark.parametrize(("size", "batch"), [(2, 8), (8, 2)])
def test_fewer_samples_than_devices_are_refused(size, batch):
    with pytest.raises(
        ActlabError, match=r"per device \(3\), got 2\. Set a larger eval_batch_size"
    ):
        BatchesInOrder(SequentialSampler(range(size)), batch, False, 0, 3)


def test_impossible_batches_are_refused():
    with pytest.raises(
        ActlabError, match=r"batch_size: expected a multiple of the 3 devices, got \d+"
    ):
        SeededBatches(SIZE, BATCH, 0, world_size=3)
    with pytest.raises(
        ActlabError, match="batch_size: expected at most the 50 training samples, got 64"
    ):
        SeededBatches(SIZE, 64, 0)


def test_the_order_of_an_epoch_lies_on_the_device_of_the_data():
    """A copy of each batch's index would wait for all kernels before it."""
    assert {index.device.type for index in batches_of(device=torch.device("meta"))} == {"meta"}
    assert {index.device.type for index in batches_of()} == {"cpu"}
    data = Frames()
    data.setup("fit")
    assert data.train_dataloader().batch_sampler.device == data.train.device
