"""Loads the images of a folder, which another process decodes; prints the labels for training."""

import sys

from actlab.datamodules import images


def decode(*_):
    raise AssertionError("decoded by both")


assert "datasets" not in sys.modules
vars(images)["decode"] = decode
print("ready", flush=True)
input()
found = images.ImageDataModule(sys.argv[1], channels=1, cache_dir=sys.argv[2])
print(found.images.tensors["train_labels"].tolist())
