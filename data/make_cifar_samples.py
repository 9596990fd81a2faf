"""Make ``data/samples/cifar10`` and ``data/samples/cifar100`` from nothing.

No image of CIFAR-10 or CIFAR-100 is in them: they have generated patterns, in the layout and with
the class names of the real ones:

    python data/make_cifar_samples.py
"""

import io
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR100 = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
# Images of each split
COUNTS = {"cifar10": {"train": 200, "test": 50}, "cifar100": {"train": 200, "test": 100}}
SAMPLES = Path(__file__).parent / "samples"


def write(
    path: Path, images: np.ndarray, names: dict[str, list[str]], labels: dict[str, list[int]]
) -> None:
    """Images uint8 (N, 32, 32, 3) and columns of labels as parquet of PNG in the hub's layout."""
    features = {"img": datasets.Image()} | {
        key: datasets.ClassLabel(names=names[key]) for key in labels
    }
    cells = [{"bytes": png(image), "path": None} for image in images]
    table = datasets.Dataset.from_dict({"img": cells, **labels}, datasets.Features(features))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")  # a reader never meets half a file
    table.to_parquet(partial)
    partial.replace(path)


def png(pixels: np.ndarray) -> bytes:
    """An image as the smallest PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def write_cifar10() -> None:
    """Patterns of ten kinds, other ones than CIFAR-100 has, each as often as the others."""
    for split, count in COUNTS["cifar10"].items():
        numbers = [7 * number % 10 for number in range(count)]
        images = [pattern(100 + kind, number, split) for number, kind in enumerate(numbers)]
        path = SAMPLES / "cifar10" / "plain_text" / f"{split}-00000-of-00001.parquet"
        write(path, np.stack(images), {"label": CIFAR10}, {"label": numbers})


def write_cifar100() -> None:
    """Patterns of a hundred kinds, with the two columns of labels that CIFAR-100 has."""
    fine = sorted(name for names in CIFAR100.values() for name in names.split())
    coarse = [
        next(n for n, names in enumerate(CIFAR100.values()) if name in names.split())
        for name in fine
    ]
    for split, count in COUNTS["cifar100"].items():
        numbers = [37 * number % 100 for number in range(count)]
        images = np.stack([pattern(kind, number, split) for number, kind in enumerate(numbers)])
        path = SAMPLES / "cifar100" / "cifar100" / f"{split}-00000-of-00001.parquet"
        columns = {"fine_label": numbers, "coarse_label": [coarse[number] for number in numbers]}
        write(path, images, {"fine_label": fine, "coarse_label": list(CIFAR100)}, columns)


def pattern(kind: int, number: int, split: str) -> np.ndarray:
    """An image uint8 (32, 32, 3): shifted stripes with the kind's direction, width and colours.

    All in whole numbers, so that every computer draws the same.
    """
    of_kind, of_image = np.random.PCG64(kind), np.random.PCG64([len(split), number])
    down, right, width = of_kind.random_raw(3) % 7 + 1
    colours = (of_kind.random_raw(6) % 256).astype(np.int64).reshape(2, 3)
    shift, light = (of_image.random_raw(2) % 32).astype(np.int64)
    rows, columns = np.indices((32, 32))
    wave = (int(down) * rows + int(right) * columns) // (int(width) + 2) + shift
    step = np.abs(wave % 16 - 8)[..., None]  # 0 … 8 … 0
    pixels = (colours[0] * step + colours[1] * (8 - step)) // 8 + light - 16
    return pixels.clip(0, 255).astype(np.uint8)


if __name__ == "__main__":
    write_cifar10()
    write_cifar100()
