"""The ELU paper's network for ImageNet: layers, shapes, parameters, weights; the pyramid."""

import pytest
import torch
from torch import nn

from actlab.networks import Dropout, PyramidNet
from actlab.networks.init import weights_of_run
from actlab.networks.pyramid import SpatialPyramidPool

TINY = {
    "input_shape": (2, 20, 24),
    "stacks": ((1, 3, 6), (2, 4, 3)),
    "levels": (1, 2),
    "dense": (8, 6),
}


def of_run(seed, **options):
    with weights_of_run(seed, []):
        return PyramidNet(nn.ELU, 5, **{**TINY, **options})


@pytest.fixture(scope="module")
def whole():
    """The paper's network, without memory for its weights."""
    with torch.device("meta"):
        return PyramidNet(nn.ELU, 1000, dropout=0)


def test_it_has_the_papers_parameters(whole):
    """Layers × units × receptive field of ELU §4.4, with biases; 21 bins of 1,024 channels."""
    convolutions = [
        (3, 96, 6),
        (96, 512, 3),
        *[(512, 512, 3)] * 2,
        (512, 768, 3),
        *[(768, 768, 3)] * 4,
    ]
    convolutions += [(768, 1024, 3), *[(1024, 1024, 3)] * 2]
    dense = [(21 * 1024, 4096), (4096, 4096), (4096, 1000)]
    expected = sum(a * b * k * k + b for a, b, k in convolutions) + sum(a * b + b for a, b in dense)
    assert sum(p.numel() for p in whole.parameters()) == expected == 164_867_528
    assert len(convolutions) + len(dense) == 15


def test_its_layers_are_the_papers(whole):
    x, found = torch.zeros(2, 3, 224, 224, device="meta"), []
    for layer in whole:
        x = layer(x)
        match layer:
            case nn.Conv2d():
                found.append((layer.kernel_size[0], *x.shape[1:3]))
            case nn.MaxPool2d():
                found.append(("pool", x.shape[2]))
            case SpatialPyramidPool() | nn.Linear():
                found.append(x.shape[1])
    assert found == [
        *[(6, 96, 112), ("pool", 56)],
        *[*[(3, 512, 56)] * 3, ("pool", 28)],
        *[*[(3, 768, 28)] * 5, ("pool", 14)],
        *[*[(3, 1024, 14)] * 3, ("pool", 7)],
        *[21 * 1024, 4096, 4096, 1000],
    ]


def test_a_unit_follows_every_layer_but_the_last_and_dropout_the_dense_ones():
    kinds = [type(layer) for layer in of_run(0)]
    convolution, dense = [nn.Conv2d, nn.ELU], [nn.Linear, nn.ELU, Dropout]
    stacks = [*convolution, nn.MaxPool2d, *convolution * 2, nn.MaxPool2d]
    assert kinds == [*stacks, SpatialPyramidPool, *dense * 2, nn.Linear]
    assert [layer.p for layer in of_run(0) if isinstance(layer, Dropout)] == [0.5, 0.5]


def test_the_pyramid_holds_the_maxima_of_its_bins():
    x = torch.randn(2, 3, 8, 8)
    pooled = SpatialPyramidPool((1, 2, 4))(x)
    assert torch.equal(pooled[:, :3], x.amax((2, 3)))
    assert torch.equal(pooled[:, 3:15], x.view(2, 3, 2, 4, 2, 4).amax((3, 5)).flatten(1))
    assert torch.equal(pooled[:, 15:], x.view(2, 3, 4, 2, 4, 2).amax((3, 5)).flatten(1))
    assert SpatialPyramidPool((1, 2, 4))(torch.randn(2, 3, 7, 5)).shape == (2, 63)


def test_weights_are_normal_by_hes_rule():
    network = of_run(0, stacks=((1, 64, 6), (2, 64, 3)), dense=(512, 512))
    for layer in (m for m in network if isinstance(m, nn.Conv2d | nn.Linear)):
        assert layer.weight.std().item() == pytest.approx(
            (2 / layer.weight[0].numel()) ** 0.5, rel=0.1
        )
        assert not layer.bias.any()
