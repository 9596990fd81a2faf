"""Stacked training: R runs of one network trained as one module."""

from actlab.stacking.layers import stacked_form, walked
from actlab.stacking.network import StackedNetwork
from actlab.stacking.task import StackedTask

__all__ = ["StackedNetwork", "StackedTask", "stacked_form", "walked"]
