"""Make ``data/samples/imagenet``: a tree of folders as ImageNet's has it, with generated pictures.

    python data/make_imagenet_sample.py

Ten classes, each with four training and two validation pictures of its own stripes, JPEG files of
different sizes; one is grey, one has ink colours (CMYK), as some of ImageNet's are. Nothing in it
is of ImageNet.
"""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

SAMPLE = Path(__file__).parent / "samples" / "imagenet"
CLASSES = 10
COUNTS = {"train": 4, "val": 2}


def pattern(kind: int, number: int, height: int, width: int) -> np.ndarray:
    """Stripes uint8 (H, W, 3) with the class's direction, width, colours; the image's shift."""
    of_kind, of_picture = np.random.PCG64(kind), np.random.PCG64([kind, number])
    down, right, broad = (of_kind.random_raw(3) % 5 + 1).tolist()
    colours = (of_kind.random_raw(6) % 256).astype(np.int64).reshape(2, 3)
    shift = int(of_picture.random_raw() % 32)
    rows, columns = np.indices((height, width))
    # 0 … 8 … 0
    step = np.abs(((down * rows + right * columns) // (2 * broad) + shift) % 16 - 8)[..., None]
    return ((colours[0] * step + colours[1] * (8 - step)) // 8).astype(np.uint8)


def main() -> None:
    """Write all pictures anew."""
    shutil.rmtree(SAMPLE, ignore_errors=True)
    for part, count in COUNTS.items():
        for kind in range(CLASSES):
            folder = SAMPLE / part / f"n{kind:08}"
            folder.mkdir(parents=True)
            for number in range(count):
                seen = number + (part == "val") * 100
                picture = Image.fromarray(pattern(kind, seen, 40 + 3 * (kind % 4), 40 + 5 * number))
                mode = {(0, 1): "L", (1, 1): "CMYK"}.get((kind, seen), "RGB")
                picture.convert(mode).save(folder / f"{folder.name}_{seen}.JPEG", quality=75)


if __name__ == "__main__":
    main()
