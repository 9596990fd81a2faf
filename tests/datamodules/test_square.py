"""Points of a square: where they lie, and that they depend on the seed and their position alone."""

import pytest
import torch

from actlab.datamodules import SquareDataModule
from actlab.datamodules.samplers import SeededBatches
from actlab.errors import ActlabError
from actlab.random.positions import Position


def made(**options):
    data = SquareDataModule(**{"batch_size": 64, "updates_per_epoch": 3, "side": 5, **options})
    data.setup("fit")
    return data


def test_training_has_points_inside_and_four_neighbours_at_one_place_on_all_sides():
    batches = list(made().train_dataloader())
    assert len(batches) == 3
    inside, sides = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert inside.shape == sides.shape == (192, 2)
    assert inside.abs().max() < 1 < inside.abs().max() + 0.1
    assert len(inside.unique(dim=0)) == 192
    fours = sides.view(-1, 4, 2)
    assert fours[:, :2, 0].equal(torch.tensor([-1.0, 1.0]).expand(48, 2))
    assert fours[:, 2:, 1].equal(torch.tensor([-1.0, 1.0]).expand(48, 2))
    places = torch.cat([fours[:, :2, 1], fours[:, 2:, 0]], 1)
    assert (places == places[:, :1]).all()
    assert len(places[:, 0].unique()) == 48


def test_points_are_fresh_in_each_epoch_and_equal_for_equal_seeds():
    loader = made(seed=7).train_dataloader()
    first = [batch[0] for batch in loader]
    loader.batch_sampler.set_epoch(1)
    second = [batch[0] for batch in loader]
    assert not any(a.equal(b) for a in first for b in second)
    assert all(
        a.equal(batch[0]) for a, batch in zip(first, made(seed=7).train_dataloader(), strict=True)
    )


def test_samples_are_those_of_their_position_in_any_order_and_on_several_devices():
    samples = made(seed=7).train
    loader = made(seed=7).train_dataloader()
    in_order = [torch.cat(parts) for parts in zip(*loader, strict=True)]
    for index in ([3], [100, 5, 5], range(60, 70), range(190, 192)):
        found = samples.batch(samples.position_of(list(index)))
        assert all(
            part.equal(whole[list(index)]) for part, whole in zip(found, in_order, strict=True)
        )
    halves = [
        [
            batch.index
            for batch in SeededBatches(192, 64, 7, rank=rank, world_size=2, shuffled=False)
        ]
        for rank in (0, 1)
    ]
    for rank, parts in enumerate(halves):
        for number, part in enumerate(parts):
            inside, _ = made(seed=7).train.batch(Position((7,), 0, part))
            start = 64 * number + 32 * rank
            assert inside.equal(in_order[0][start : start + 32])


def test_evaluation_is_on_a_grid_and_the_midpoints_of_its_cells():
    data = made()
    (val,), (test,) = data.val.tensors, data.test.tensors
    assert (len(val), len(test)) == (25, 16)
    assert val[:, 0].unique().tolist() == [-1, -0.5, 0, 0.5, 1]
    assert test[:, 1].unique().tolist() == [-0.75, -0.25, 0.25, 0.75]


def test_a_number_that_is_too_small_is_named():
    with pytest.raises(
        ActlabError, match="side: expected a number greater than or equal to 2, got 1"
    ):
        made(side=1)
