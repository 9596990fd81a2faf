"""Datamodules: files become tensors, once."""

from actlab.datamodules.cifar import CIFARDataModule
from actlab.datamodules.mnist import MNISTDataModule

__all__ = ["CIFARDataModule", "MNISTDataModule"]
