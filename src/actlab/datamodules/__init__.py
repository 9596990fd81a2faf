"""Datamodules: files become tensors, once."""

from actlab.datamodules.mnist import MNISTDataModule
from actlab.datamodules.timit import TIMITDataModule
from actlab.datamodules.twitter_pos import TwitterPOSDataModule

__all__ = ["MNISTDataModule", "TIMITDataModule", "TwitterPOSDataModule"]
