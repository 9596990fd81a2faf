"""Datamodules: files become tensors, once."""

from actlab.datamodules.mnist import MNISTDataModule

__all__ = ["MNISTDataModule"]
