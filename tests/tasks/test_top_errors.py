"""The share of samples with labels outside the top classes: alone, stacked, in a study."""

import numpy as np
import pytest
import torch

from actlab.errors import ActlabError
from actlab.stacking.task import reason_against
from actlab.storage.resources import config_file
from actlab.tasks import ClassificationTask, FrameTask


def task(top=None, kind=ClassificationTask):
    return kind(10, (4,), "relu", top=top).eval()


@pytest.mark.parametrize("top", [1, 3, 5])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_top_error_is_numpys(top, lead):
    logits, labels = torch.randn(*lead, 50, 10), torch.randint(10, (*lead, 50))
    found = task(top).quantities(logits, (torch.empty(0), labels))
    assert (
        tuple(found) == task(top).metric_names == ("loss", "error", "accuracy", f"top{top}_error")
    )
    best = np.argsort(-logits.numpy(), -1)[..., :top]
    expected = (best != labels.numpy()[..., None]).all(-1)
    np.testing.assert_array_equal(found[f"top{top}_error"].values.numpy(), expected)
    if top == 1:
        assert torch.equal(found["top1_error"].values, found["error"].values)


def test_it_is_there_only_where_it_is_asked_for():
    assert task().metric_names == ("loss", "error", "accuracy")
    assert ClassificationTask.metrics_for({"top": 5}) == task(5).metric_names
    assert FrameTask.metrics_for({}) == task(kind=FrameTask).metric_names
    assert reason_against(task(5)) is None


def test_padding_has_no_weight():
    labels = torch.tensor([3, -100, 4])
    logits = torch.nn.functional.one_hot(torch.tensor([3, 0, 0]), 10).float()
    found = task(1, FrameTask).quantities(logits, (torch.empty(0), labels))
    assert found["top1_error"].mean() == 0.5


@pytest.mark.parametrize("top", [0, 11])
def test_an_impossible_number_is_refused(top):
    with pytest.raises(
        ActlabError, match=f"model.top: expected a number of classes from 1 to 10, got {top}"
    ):
        task(top)


def test_it_can_be_logged_of_training_too():
    assert ClassificationTask(10, (4,), training_metrics=["top5_error"], top=5).trained == (
        "loss",
        "top5_error",
    )


def test_a_study_knows_it(cli, tmp_path):
    """And refuses the metric of another number before anything is trained."""
    text = config_file("elu_imagenet", "configs/studies").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("../imagenet_elu15.yaml", "imagenet_elu15"))
    assert cli("study", "plan", path, "--smoke", "--runs-dir", tmp_path).code == 0
    path.write_text(path.read_text().replace("top5_error", "top4_error"))
    outcome = cli("study", "plan", path, "--smoke", "--runs-dir", tmp_path)
    assert outcome.code == 2
    assert "top4_error" in outcome.err
