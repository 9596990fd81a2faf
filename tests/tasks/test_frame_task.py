"""Frames: padding has no weight; without padding it is classification; the paper's network."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.networks import MLP, Dropout
from actlab.random.streams import Uniform
from actlab.stacking import StackedTask
from actlab.storage.resources import config_file
from actlab.tasks import ClassificationTask, FrameTask


def outputs(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, 5, generator=generator), torch.randint(5, shape, generator=generator)


@pytest.mark.parametrize("training", [False, True])
def test_without_padding_it_is_classification(training):
    logits, labels = outputs(12)
    frames, plain = (kind(5, (3,)).train(training) for kind in (FrameTask, ClassificationTask))
    found = frames.quantities(logits, (logits, labels))
    for name, expected in plain.quantities(logits, (logits, labels)).items():
        assert found[name].mean().item() == pytest.approx(expected.mean().item(), rel=1e-6)
        assert float(found[name].weight()) == expected.weight() == 12


def test_padding_has_no_weight_and_no_gradient():
    logits, labels = outputs(2, 7)
    labels[0, 4:] = -100
    logits.requires_grad_()
    task = FrameTask(5, (3,)).eval()
    together = task.quantities(logits, (logits, labels))
    for r, frames in enumerate((4, 7)):
        alone = task.quantities(logits[r, :frames], (logits[r, :frames], labels[r, :frames]))
        for name, quantity in alone.items():
            assert together[name].mean(runs=True)[r].item() == pytest.approx(
                quantity.mean().item(), rel=1e-6
            )
            assert together[name].weight(runs=True)[r] == frames
    together["loss"].mean(runs=True).sum().backward()
    assert not logits.grad[0, 4:].any()
    assert logits.grad[0, :4].all()


def drawn_by(monkeypatch, *parts):
    """The numbers that each device draws for its part of a batch, after its first layer."""
    found = []
    for rank, part in enumerate(parts):
        task = FrameTask(5, part.shape[1:], network=partial(MLP, hidden=[8], dropout=0.5))
        trainer = SimpleNamespace(world_size=len(parts), current_epoch=1, global_rank=rank)
        monkeypatch.setattr(task, "_trainer", trainer)
        monkeypatch.setattr(task, "_fabric", None)
        monkeypatch.setattr(task, "all_gather", lambda own: torch.tensor([p.shape for p in parts]))
        task.begin_update((part,), 3)
        (site,) = (part for part in task.network.modules() if isinstance(part, Uniform))
        found.append(site(torch.zeros(*part.shape[:-1], 8)))
    return found


@pytest.mark.parametrize("sizes", [(9, 4), (4, 9), (6, 0, 7)])
def test_devices_with_unequal_parts_of_a_batch_draw_the_numbers_of_one(monkeypatch, sizes):
    (whole,) = drawn_by(monkeypatch, torch.zeros(13, 3))
    parts = drawn_by(monkeypatch, *(torch.zeros(size, 3) for size in sizes))
    assert torch.equal(torch.cat(parts), whole)


def test_parts_of_a_batch_that_are_padded_apart_draw_numbers_of_their_own(monkeypatch):
    """With numbers by row, the rows of a long part would share some with those of a short one."""
    long, short = (
        set(u.flatten().tolist())
        for u in drawn_by(monkeypatch, torch.zeros(2, 9, 3), torch.zeros(2, 4, 3))
    )
    assert not long & short


def test_a_stack_of_batches_that_differ_in_size_has_one_device(monkeypatch):
    stack = StackedTask([FrameTask(5, (3,), seed=seed) for seed in range(2)])
    monkeypatch.setattr(stack, "_trainer", SimpleNamespace(world_size=2))
    monkeypatch.setattr(stack, "_fabric", None)
    with pytest.raises(
        ActlabError, match=r"a stack of FrameTask on 2 devices.*Set trainer\.devices to 1"
    ):
        stack.setup("fit")


def test_the_config_builds_the_papers_network(tmp_path, monkeypatch):
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path))
    config = yaml.safe_load(config_file("timit_frames").read_text(encoding="utf-8"))
    config["data"]["init_args"]["sample"] = True
    config["trainer"].pop("logger")
    data: Any
    trainer, task, data = build(config)
    assert isinstance(task, FrameTask)
    assert sum(p.numel() for p in task.parameters()) == 17_453_095
    assert sum(isinstance(layer, Dropout) for layer in task.network.children()) == 5
    assert (data.num_classes, data.input_shape, data.batch_size, trainer.max_epochs) == (
        39,
        (11, 26),
        64,
        30,
    )
    assert not task.schedules  # Adam at a constant rate
