"""Probes: evaluations of trained networks, for one run or several runs at once."""

from actlab.probes.bias_shift import BiasShift
from actlab.probes.layers import BlockGradients, LayerGradients, NetInputs, PassedNoise
from actlab.probes.noise import Evaluation, InputNoise, Measured, Probe, Subject

__all__ = [
    "BiasShift",
    "BlockGradients",
    "Evaluation",
    "InputNoise",
    "LayerGradients",
    "Measured",
    "NetInputs",
    "PassedNoise",
    "Probe",
    "Subject",
]
