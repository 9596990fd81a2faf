"""Loads the images of a folder, which another process decodes; prints the labels for training."""

import sys

from actlab.datamodules import images


def decode(*_):
    raise AssertionError("decoded by both")


assert "datasets" not in sys.modules
vars(images)["decode"] = decode
print("ready", flush=True)
input()
found = images.load_images(sys.argv[1], {"train": "train", "test": "test"}, 1, cache_dir=sys.argv[2])
print(found.tensors["train_labels"].tolist())
