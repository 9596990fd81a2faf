"""Loads the images of a folder, which another process decodes; prints the labels for training."""

import sys

from actlab.datamodules import sources


def decode(*_):
    raise AssertionError("decoded by both")


assert "datasets" not in sys.modules
vars(sources)["decode"] = decode
print("ready", flush=True)
input()
images = sources.load_images(sys.argv[1], ("train", "test"), 1, cache_dir=sys.argv[2])
print(images.tensors["train_labels"].tolist())
