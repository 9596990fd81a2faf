"""Probes: what is measured on trained networks, for one run or for many at once."""

from actlab.probes.bias_shift import BiasShift
from actlab.probes.noise import Evaluation, InputNoise, Measured, Probe, Subject

__all__ = ["BiasShift", "Evaluation", "InputNoise", "Measured", "Probe", "Subject"]
