"""Run every benchmark and write ``benchmarks/latest.json``: figures, ratios, versions, hardware.

    python benchmarks/run.py [--dataset FOLDER_OR_HUB_ID]

Each benchmark is a module beside this one with ``measure(dataset) -> dict``; a name with ``_vs_`` is a ratio.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import data
import stacks

from actlab.studies.runs import hardware

BENCHMARKS = {"stacks": stacks.measure, "data": data.measure}
PACKAGES = ("actlab", "torch", "pytorch-lightning", "torchmetrics", "datasets")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="MNIST as a hub id or folder; by default the embedded sample")
    dataset = parser.parse_args().dataset
    figures: dict[str, dict[str, float]] = {}
    for name, measure in BENCHMARKS.items():
        figures[name] = measure(dataset)
        for key, value in figures[name].items():
            print(f"{key:36} {value:12.4g}", flush=True)
    ratios = {k: v for group in figures.values() for k, v in group.items() if "_vs_" in k}
    record = {
        "ratios": ratios,
        "figures": figures,
        "dataset": dataset or "the embedded sample of MNIST",
        "versions": {package: version(package) for package in PACKAGES},
        "hardware": hardware(),
    }
    path = Path(__file__).with_name("latest.json")
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
