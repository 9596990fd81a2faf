"""Trained tasks leave the framework: `torch.export`, TorchScript by tracing, ONNX."""

from functools import partial

import pytest
import torch

from actlab import activations
from actlab.networks import MLP
from actlab.tasks import ClassificationTask

IMAGES = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def task_with(activation):
    network = partial(MLP, hidden=[8], dropout=0.1)
    return ClassificationTask(10, (1, 28, 28), activation, network).eval()


@pytest.mark.parametrize("name", activations.names())
def test_every_activation_is_exported(name):
    task = task_with(name)
    exported = torch.export.export(task, (IMAGES,), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
    for images in (IMAGES, IMAGES[:2]):
        assert torch.equal(exported.module()(images), task(images))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", activations.names())
def test_the_network_of_every_activation_is_traced(name):
    network = task_with(name).network
    traced = torch.jit.trace(network, IMAGES)
    assert torch.allclose(traced(IMAGES[:2]), network(IMAGES[:2]), atol=1e-6)


NO_ONNX = {"laplace_lu"}  # ONNX has no sign bit


@pytest.mark.parametrize("name", sorted({*activations.names()} - NO_ONNX))
def test_every_activation_becomes_onnx(name, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    task = task_with(name)
    task.to_onnx(tmp_path / "x.onnx", IMAGES, dynamo=True, verbose=False)
    session = runtime.InferenceSession(tmp_path / "x.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: IMAGES.numpy()})
    assert torch.allclose(torch.from_numpy(found), task(IMAGES), atol=1e-5)
