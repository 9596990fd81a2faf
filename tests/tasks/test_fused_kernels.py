"""Evaluation computes what was trained: fused kernels replace no activation of an encoder."""

import pytest
import torch

from actlab.tasks import ClassificationTask
from programs.encoders import Leaky, encoder

CONFIG = """\
model: {class_path: encoders.Module}
data: {class_path: encoders.Data}
trainer: {max_epochs: 1, logger: false, enable_progress_bar: false, enable_model_summary: false}
"""


class Rows(torch.nn.Module):
    def __init__(self, act, num_classes, input_shape):
        super().__init__()
        self.encoder = encoder(act())
        self.head = torch.nn.Linear(8, num_classes)

    def forward(self, x):
        return self.head(self.encoder(x)).mean(1)


class Late(ClassificationTask):
    def configure_model(self):
        self.network = Rows(Leaky, 3, (5, 8))


def gap(task, x):
    with torch.no_grad():
        return (task.train()(x) - task.eval()(x)).abs().max().item()


@pytest.mark.parametrize("activation", [Leaky, "gelu_tanh"])
def test_a_task_is_evaluated_with_the_activation_it_was_trained_with(activation):
    task, late = (kind(3, (5, 8), activation, Rows) for kind in (ClassificationTask, Late))
    late.configure_model()
    x = 3 * torch.randn(4, 5, 8)
    assert gap(task, x) < 2e-6
    assert gap(late, x) < 2e-6
    layer = task.network.encoder.layers[0].eval()
    assert not layer.activation_relu_or_gelu  # also of a network that is called without its task


def test_a_third_party_module_is_evaluated_with_its_own_activation(
    cli, program, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("encoders")
    (tmp_path / "own.yaml").write_text(CONFIG)
    assert (found := cli("fit", "-c", "own.yaml")).code == 0, found.err
