"""Make ``data/samples/table``: a generated table of whole numbers in the hub's layout.

Each class has a mean for each feature; rows are these means with Gaussian noise, rounded to 0 … 15,
as in the UCI table *letter*. It is under this project's licence:

    python data/make_table_sample.py [FOLDER]
"""

import sys
from pathlib import Path

import datasets
import numpy as np

ROWS = {"train": 600, "validation": 100, "test": 200}
CLASSES = ["A", "B", "C", "D", "E"]
NAMES = [f"x{number}" for number in range(1, 17)]
FEATURES = datasets.Features(
    {
        **dict.fromkeys(NAMES, datasets.Value("float32")),
        "label": datasets.ClassLabel(names=CLASSES),
    }
)
NOISE = 4.0  # standard deviation


def main() -> None:
    """Write the sample; the same values each time."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "samples" / "table"
    random = np.random.default_rng(0)
    means = random.uniform(3, 12, (len(CLASSES), len(NAMES)))
    for split, number in ROWS.items():
        labels = random.integers(len(CLASSES), size=number)
        values = random.normal(means[labels], NOISE).round().clip(0, 15)
        columns = dict(zip(NAMES, values.astype(np.float32).T, strict=True))
        table = datasets.Dataset.from_dict({**columns, "label": labels}, FEATURES)
        table.to_parquet(folder / "table" / f"{split}-00000-of-00001.parquet")


if __name__ == "__main__":
    main()
