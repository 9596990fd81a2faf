"""Write Fashion-MNIST (Zalando, MIT licence) from a Debian package, in the hub's layout.

    apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb packages
    python results/scoreboard/fashion_mnist.py packages FOLDER

Writes ``FOLDER/fashion_mnist``, with the images and labels of the hub's
``zalando-datasets/fashion_mnist``.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, Features, Image

CLOTHES = "T - shirt / top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
FEATURES = Features({"image": Image(), "label": ClassLabel(names=CLOTHES.split(","))})


def idx(file: Path) -> np.ndarray:
    """Return the bytes of a file in the format of MNIST, in its shape."""
    content = gzip.decompress(file.read_bytes())
    rank = content[3]
    shape = np.frombuffer(content, ">i4", rank, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def main(packages: Path, folder: Path) -> None:
    """Write both splits."""
    source = packages / "usr/share/datasets/fashion-mnist"
    for split, name in {"train": "train", "test": "t10k"}.items():
        images = idx(source / f"{name}-images-idx3-ubyte.gz")
        labels = idx(source / f"{name}-labels-idx1-ubyte.gz")
        rows = Dataset.from_dict({"image": [*images], "label": labels}, FEATURES)
        rows.to_parquet(folder / "fashion_mnist" / f"{split}-00000-of-00001.parquet")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
