"""Frames: padding has no weight; without padding it is classification; the config is the paper's network."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from actlab.experiments import build
from actlab.networks import MLP
from actlab.random.streams import Uniform
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
            assert together[name].mean(runs=True)[r].item() == pytest.approx(quantity.mean().item(), rel=1e-6)
            assert together[name].weight(runs=True)[r] == frames
    together["loss"].mean(runs=True).sum().backward()
    assert not logits.grad[0, 4:].any()
    assert logits.grad[0, :4].all()


def test_devices_with_unequal_parts_of_a_batch_draw_numbers_of_their_own(monkeypatch):
    """With numbers by row, the rows of a long part would share some with those of a short one."""
    drawn = {}
    for rank, rows in ((0, 9), (1, 4)):
        task = FrameTask(5, (3,), network=partial(MLP, hidden=[8], dropout=0.5))
        trainer = SimpleNamespace(world_size=2, current_epoch=1, global_rank=rank)
        monkeypatch.setattr(task, "_trainer", trainer)
        monkeypatch.setattr(task, "_fabric", None)
        task._move(3)
        (site,) = (part for part in task.network.modules() if isinstance(part, Uniform))
        drawn[rank] = set(site(torch.zeros(rows, 8)).flatten().tolist())
    assert not drawn[0] & drawn[1]


def test_the_config_builds_the_papers_network(tmp_path, monkeypatch):
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path))
    config = yaml.safe_load(config_file("timit_frames").read_text(encoding="utf-8"))
    config["data"]["init_args"]["sample"] = True
    config["trainer"].pop("logger")
    data: Any
    trainer, task, data = build(config)
    assert isinstance(task, FrameTask)
    assert sum(p.numel() for p in task.parameters()) == 17_453_095
    assert (data.num_classes, data.input_shape, data.batch_size, trainer.max_epochs) == (39, (11, 26), 64, 30)
    assert not task.schedules  # Adam at a constant rate
