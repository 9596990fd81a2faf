"""Write a copy of MNIST with 95 % of the pixels 0: ``python sparse.py FOLDER_OF_MNIST NEW_FOLDER``.

FOLDER_OF_MNIST holds the parquet files in the hub's layout. Each non-zero pixel is kept with one
probability, drawn from numpy's generator of seed 0, file by file in order of their names; labels
and order are unchanged.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ZEROS = 0.95


def pixels(table: pa.Table) -> np.ndarray:
    """Return the images of a file, ``(N, 28, 28)``."""
    files = (io.BytesIO(image["bytes"]) for image in table["image"].to_pylist())
    return np.stack([np.asarray(Image.open(file)) for file in files])


def png(image: np.ndarray) -> bytes:
    """Return an image as PNG."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def main() -> None:
    """Write each file with fewer pixels, and print the share of zeros before and after."""
    source, target = map(Path, sys.argv[1:])
    paths = sorted(source.rglob("*.parquet"))
    tables = {path: pq.read_table(path) for path in paths}
    found = {path: pixels(table) for path, table in tables.items()}
    (train,) = (images for path, images in found.items() if path.name.startswith("train"))
    keep, random = (1 - ZEROS) / (train > 0).mean(), np.random.default_rng(0)
    for path, images in found.items():
        sparse = np.where(random.random(images.shape) < keep, images, 0).astype(np.uint8)
        table = tables[path]
        column = pa.array(
            [{"bytes": png(image), "path": None} for image in sparse],
            table.schema.field("image").type,
        )
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        index = table.schema.get_field_index("image")
        pq.write_table(table.set_column(index, table.schema.field("image"), column), place)
        print(f"{path.name}: {(images == 0).mean():.4f} zeros, now {(sparse == 0).mean():.4f}")


if __name__ == "__main__":
    main()
