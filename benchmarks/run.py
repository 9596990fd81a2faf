"""Run every benchmark and write ``benchmarks/latest.json``: figures, ratios, versions, load.

    python benchmarks/run.py [--dataset FOLDER_OR_HUB_ID]

Draws ``benchmarks/stacks.png`` as well. Each benchmark is a module beside this one with
``measure(dataset) -> dict``; a name with ``_vs_`` is a ratio.
"""

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path

import busy
import data
import jax_table
import psutil
import pyramid
import stacks
import torch
import units
from figures import show
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from actlab.reports import style
from actlab.runtime.machine import hardware

BENCHMARKS = {
    "jax": jax_table.measure,
    "busy": busy.measure,
    "stacks": stacks.measure,
    "units": units.measure,
    "pyramid": pyramid.measure,
    "data": data.measure,
}
PACKAGES = ("actlab", "torch", "pytorch-lightning", "torchmetrics", "datasets", "jax", "optax")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", help="MNIST as a hub id or folder; by default the embedded sample"
    )
    dataset = parser.parse_args().dataset
    load = psutil.cpu_percent(1)  # of other processes, before we begin
    figures: dict[str, dict[str, float]] = {}
    seconds: dict[str, int] = {}
    for name, measure in BENCHMARKS.items():
        start = time.perf_counter()
        figures[name] = measure(dataset)
        seconds[name] = round(time.perf_counter() - start)
        show(figures[name])
        print(f"{name} took {seconds[name]} s", flush=True)
    ratios = {k: v for group in figures.values() for k, v in group.items() if "_vs_" in k}
    record = {
        "ratios": ratios,
        "figures": figures,
        "dataset": dataset or "the embedded sample of MNIST",
        "versions": {package: version(package) for package in PACKAGES},
        "hardware": hardware()
        + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""),
        "load_percent": load,
        "seconds": seconds,  # that each benchmark took
    }
    path = Path(__file__).with_name("latest.json")
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)
    for drawn in draw(figures["stacks"], path.with_name("stacks")):
        print(drawn)


def draw(figures: dict[str, float], stem: Path) -> list[Path]:
    """Time of an update and run, and memory, over the size of the stack."""
    with rc_context(style.RC):
        figure = Figure(figsize=(6.4, 2.6), layout="constrained")
        time, memory = figure.subplots(1, 2)
        sizes = stacks.SIZES
        blue, orange = "#0072B2", "#D55E00"
        for name, text, colour in (
            ("stacked", "stack", blue),
            ("products", "its products alone", orange),
        ):
            values = [figures[f"{name}_{n}_ms"] for n in sizes]
            time.plot(sizes, values, "o-", color=colour, markersize=3, label=text)
        alone = (
            ("loop_ms", "one run, loop by hand", ":"),
            ("trainer_ms", "one run, Trainer", "--"),
        )
        for name, text, dashes in alone:
            time.axhline(
                figures[name], color=style.GREY, linewidth=0.8, linestyle=dashes, label=text
            )
        memory.plot(
            sizes, [figures[f"stacked_{n}_mb"] for n in sizes], "o-", color=blue, markersize=3
        )
        time.set(title="time of an update and run", ylabel="ms", ylim=(0, None))
        memory.set(title="memory that a stack adds", ylabel="MiB", ylim=(0, None))
        # Below the dashed lines
        time.legend(fontsize=7, loc="upper right", bbox_to_anchor=(1, 0.86))
        for axes in (time, memory):
            axes.set(xscale="log", xticks=sizes, xlabel="runs in the stack")
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
        return style.save(figure, stem)


if __name__ == "__main__":
    main()
