"""Tasks: LightningModules that train a network built with an activation factory and define its metrics."""

from actlab.tasks.autoencoding import AutoencoderTask
from actlab.tasks.base import NetworkFactory, Task
from actlab.tasks.classification import ClassificationTask
from actlab.tasks.frames import FrameTask
from actlab.tasks.quantities import Quantity, takes_run_axis
from actlab.tasks.training import Batch

__all__ = [
    "AutoencoderTask",
    "Batch",
    "ClassificationTask",
    "FrameTask",
    "NetworkFactory",
    "Quantity",
    "Task",
    "takes_run_axis",
]
