"""Datamodules: files become tensors, once."""

from actlab.datamodules.mnist import MNISTDataModule
from actlab.datamodules.timit import TIMITDataModule

__all__ = ["MNISTDataModule", "TIMITDataModule"]
