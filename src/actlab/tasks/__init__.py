"""Tasks: LightningModules that train a network built with an activation factory."""

from actlab.tasks.autoencoding import AutoencoderTask
from actlab.tasks.base import NetworkFactory, Task
from actlab.tasks.classification import ClassificationTask
from actlab.tasks.evaluation import Batch
from actlab.tasks.frames import FrameTask
from actlab.tasks.helmholtz import HelmholtzTask, HillsTask, laplacian
from actlab.tasks.language import LanguageTask
from actlab.tasks.quantities import Derived, Quantity, takes_run_axis
from actlab.tasks.regression import PixelTask, RegressionTask

__all__ = [
    "AutoencoderTask",
    "Batch",
    "ClassificationTask",
    "Derived",
    "FrameTask",
    "HelmholtzTask",
    "HillsTask",
    "LanguageTask",
    "NetworkFactory",
    "PixelTask",
    "Quantity",
    "RegressionTask",
    "Task",
    "laplacian",
    "takes_run_axis",
]
