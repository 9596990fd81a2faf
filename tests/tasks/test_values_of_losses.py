"""Losses and metrics compare what belongs together: no broadcast, no ignored label, no guess."""

import warnings

import pytest
import pytorch_lightning as pl
import torch
from torchmetrics.classification import MulticlassAUROC
from torchmetrics.functional.classification import multiclass_auroc

from actlab.errors import RunError
from actlab.networks import MLP
from actlab.tasks import ClassificationTask, FrameTask, RegressionTask
from toys import QUIET, fitted


@pytest.mark.parametrize("targets", [(6,), (1,), (6, 1, 1)])
def test_targets_of_another_shape_are_rejected(targets):
    task = RegressionTask("relu", MLP, 1, (3,), torch.optim.SGD)
    with pytest.raises(RunError, match=r"have shape .*, but the network's output has \(6, 1\)"):
        task.quantities(torch.zeros(6, 1), (torch.zeros(6, 3), torch.zeros(targets)))


@pytest.mark.parametrize("label", [-100, -1, 4])
def test_a_label_that_is_no_class_is_rejected(label):
    task, labels = ClassificationTask(4, (3,), "relu"), torch.tensor([0, 3, label])
    words = (
        f"labels of a batch: expected classes from 0 to 3, got {label}. .*-100 in an "
        "actlab.tasks.FrameTask"
    )
    with pytest.raises(RunError, match=words):
        task.quantities(torch.randn(3, 4), (torch.empty(0), labels))


@pytest.mark.parametrize("label", [-100, 4])
def test_a_label_is_checked_before_its_batch_goes_to_a_gpu(label, tmp_path):
    """Which would end the process. On the meta device, as on a GPU, no loss sees the label."""
    task, labels = ClassificationTask(4, (3,), "relu"), torch.tensor([0, 3, label])
    frames = FrameTask(4, (3,), "relu").to("meta")
    task.trainer = frames.trainer = pl.Trainer(**QUIET, default_root_dir=tmp_path)
    task.on_before_batch_transfer((torch.zeros(3, 3), labels), 0)  # a loss on a CPU checks it
    task.to("meta")
    with pytest.raises(
        RunError, match=f"labels of a batch: expected classes from 0 to 3, got {label}"
    ):
        task.on_before_batch_transfer({"x": torch.zeros(3, 3), "y": labels}, 0)
    frames.on_before_batch_transfer((torch.zeros(2, 3), torch.tensor([0, -100])), 0)


def test_lightning_does_not_warn_of_the_hook_beside_a_datamodule(tmp_path):
    rows = torch.utils.data.TensorDataset(torch.randn(12, 3), torch.arange(12) % 4)
    data = pl.LightningDataModule.from_datasets(rows, batch_size=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("error", ".*overridden")
        fitted(
            ClassificationTask(4, (3,), "relu"), data, tmp_path, max_epochs=1, precision="32-true"
        )


def test_padding_of_frames_is_no_error():
    task, labels = FrameTask(4, (3,), "relu"), torch.tensor([[0, 3, -100]])
    assert task.quantities(torch.randn(1, 3, 4), (torch.empty(0), labels))["loss"].mean().isfinite()


@pytest.mark.parametrize("size", [1, 5, 20])
def test_a_metric_of_probabilities_does_not_depend_on_the_size_of_batches(size):
    """Some batches of these logits lie in [0, 1], which torchmetrics takes for probabilities."""
    task = ClassificationTask(3, (3,), "relu", metrics={"auroc": MulticlassAUROC(3)}).eval()
    generator = torch.Generator().manual_seed(0)
    logits = torch.rand(20, 3, generator=generator) * torch.linspace(0.5, 4, 20)[:, None]
    labels = torch.randint(3, (20,), generator=generator)
    for part in zip(logits.split(size), labels.split(size), strict=True):
        task.update_metrics("val", part[0], (torch.empty(0), part[1]), None)
    found = task.metrics.take("val", torch.device("cpu"))["auroc"]
    torch.testing.assert_close(found, multiclass_auroc(logits.softmax(-1), labels, 3))
