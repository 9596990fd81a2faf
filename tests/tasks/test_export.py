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


class Every(torch.nn.ModuleDict):
    """A task with each of some activations: together they are exported in a third of the time."""

    def forward(self, images):
        return {name: task(images) for name, task in self.items()}


# A function, learnt, by hand, drawn, drawn by hand
KINDS = (
    "gelu",
    "prelu",
    "cauchy_lu",
    "rrelu",
    "soi",
)


@pytest.mark.parametrize(
    "names", [KINDS, pytest.param(activations.names(), id="all", marks=pytest.mark.slow)]
)
def test_activations_are_exported(names):
    tasks = Every({name: task_with(name) for name in names})
    exported = torch.export.export(
        tasks, (IMAGES,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    for images in (IMAGES, IMAGES[:2]):
        found = exported.module()(images)
        assert not [
            name
            for name, expected in tasks(images).items()
            if not torch.equal(found[name], expected)
        ]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_network_of_every_activation_is_traced():
    for name in activations.names():
        network = task_with(name).network
        traced = torch.jit.trace(network, IMAGES)
        assert torch.allclose(traced(IMAGES[:2]), network(IMAGES[:2]), atol=1e-6), name


NO_ONNX = {"laplace_lu"}  # ONNX has no sign bit


def test_every_activation_becomes_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    for name in sorted({*activations.names()} - NO_ONNX):
        task = task_with(name)
        task.to_onnx(tmp_path / "x.onnx", IMAGES, dynamo=True, verbose=False)
        session = runtime.InferenceSession(tmp_path / "x.onnx")
        (found,) = session.run(None, {session.get_inputs()[0].name: IMAGES.numpy()})
        assert torch.allclose(torch.from_numpy(found), task(IMAGES), atol=1e-5), name
