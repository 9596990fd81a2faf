"""Probes: evaluations of trained networks, for one run or several runs at once."""

from actlab.probes.bias_shift import BiasShift
from actlab.probes.noise import Evaluation, InputNoise, Measured, Probe, Subject

__all__ = ["BiasShift", "Evaluation", "InputNoise", "Measured", "Probe", "Subject"]
