"""Networks of the papers' experiments, a GPT, a coordinate network and a residual MLP.

Each receives a factory of activations, never a name.
"""

from actlab.networks.autoencoder import Autoencoder
from actlab.networks.convnet import ConvNet
from actlab.networks.coordinates import CoordinateMLP
from actlab.networks.dropout import Dropout
from actlab.networks.elu import ConvStacks
from actlab.networks.gpt import GPT
from actlab.networks.init import INIT_RULES, initialise
from actlab.networks.mlp import MLP, ActivationFactory
from actlab.networks.pyramid import PyramidNet
from actlab.networks.residual_mlp import ResidualMLP
from actlab.networks.resnet import ResNet
from actlab.networks.wide_resnet import WideResNet

__all__ = [
    "GPT",
    "INIT_RULES",
    "MLP",
    "ActivationFactory",
    "Autoencoder",
    "ConvNet",
    "ConvStacks",
    "CoordinateMLP",
    "Dropout",
    "PyramidNet",
    "ResNet",
    "ResidualMLP",
    "WideResNet",
    "initialise",
]
