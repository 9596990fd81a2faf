"""Lightning datamodules that read datasets and provide batches of tensors."""

from actlab.datamodules.cifar import CIFARDataModule
from actlab.datamodules.imagenet import ImageNetDataModule
from actlab.datamodules.images import ImageDataModule
from actlab.datamodules.mnist import MNISTDataModule
from actlab.datamodules.pixels import PixelDataModule
from actlab.datamodules.square import SquareDataModule
from actlab.datamodules.table import TableDataModule
from actlab.datamodules.text import TextDataModule
from actlab.datamodules.timit import TIMITDataModule
from actlab.datamodules.twitter_pos import TwitterPOSDataModule

__all__ = [
    "CIFARDataModule",
    "ImageDataModule",
    "ImageNetDataModule",
    "MNISTDataModule",
    "PixelDataModule",
    "SquareDataModule",
    "TIMITDataModule",
    "TableDataModule",
    "TextDataModule",
    "TwitterPOSDataModule",
]
