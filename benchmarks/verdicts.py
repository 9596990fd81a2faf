"""How often verdicts are right: simulated studies with known differences, judged by actlab.

    python benchmarks/verdicts.py [--studies 20000] [--cell NAME] [--draw FILE.png]

Both sides of a comparison have the same mean; in another set of draws, one that makes wins and
losses equally likely. What is counted, of 5 % or 95 % where all is well:

- mean: verdicts of better or worse from the sign-flip test of the mean difference; covers: how
  often its interval contains the true difference.
- probability: the same from the test of the probability of being better, and its interval.
- margin: verdicts of equivalent at a true difference as large as the margin, on the side of the
  margin where they are more frequent. The margin is two standard deviations of a difference, so
  that a verdict of equivalent is within reach. Beside it, what two one-sided tests alone give.

Each cell is written to benchmarks/verdicts.json when it is done, with its number of studies; a cell
that is there with as many is not simulated again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from actlab.analysis.differences import (
    EXACT,
    Flips,
    Superiority,
    better,
    equivalent,
    paired_difference,
    paired_differences,
)
from actlab.analysis.looks import factor
from actlab.analysis.power import pairs_to_detect
from actlab.analysis.statistics import INSIDE
from actlab.analysis.study_table import Cell
from actlab.analysis.verdict import outcome
from actlab.reports import style
from actlab.reports.canvas import mpl

HERE = Path(__file__).parent
FILE = HERE / "verdicts.json"
PAIRS = (6, 9, 15, 30)
LOOKS = (6, 15, 30)
KEPT = (
    "gelu_mnist_classifier",
    "gelu_mnist_autoencoder",
    "gelu_twitter_pos",
    "elu_mnist_autoencoder",
)
FAILING = ("diverging", "half failing", "half failing, all others worse")  # no mean to compare
Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Shape:
    """Two distributions of equal mean, in standard deviations of the first."""

    first: Draw
    second: Draw
    share: float = 1.0  # of the studies of a cell, where runs fail and each test takes long


def residuals() -> np.ndarray:
    """Return test errors and losses of the stored runs, each group with mean 0 and spread 1."""
    found = []
    for name in KEPT:
        frame = pd.read_csv(HERE.parent / "results" / name / "values.csv")
        frame = frame[(frame["status"] == "finished") & (frame["chosen"] == 1)]
        keys = list(frame.columns[: frame.columns.get_loc("seed")])
        for column in (c for c in frame.columns if c.startswith("test/")):
            for _, rows in frame.groupby(keys)[column]:
                if len(rows) >= 10 and (spread := rows.std(ddof=1)):
                    found.append((rows - rows.mean()) / spread)
    return np.concatenate(found)


def contaminated(source: np.random.Generator, n: int) -> np.ndarray:
    """Return normal values, of which one in fifteen is moved by ten spreads, with mean 0."""
    return source.normal(size=n) + 10 * (source.random(n) < 1 / 15) - 10 / 15


def failing(share: float) -> Draw:
    """Return normal values, of which a share is infinite: runs that diverged, or are at chance."""
    return lambda source, n: np.where(source.random(n) < share, math.inf, source.normal(size=n))


def shapes() -> dict[str, Shape]:
    """Return the distributions by name."""
    kept = residuals()

    def normal(spread: float) -> Draw:
        return lambda source, n: source.normal(0, spread, n)

    def skewed(spread: float) -> Draw:
        return lambda source, n: spread * (source.exponential(size=n) - 1)

    def errors(images: int, error: float) -> Draw:
        return lambda source, n: source.binomial(images, error, n) / images

    def resampled(source: np.random.Generator, n: int) -> np.ndarray:
        return source.choice(kept, n)

    return {
        "normal": Shape(normal(1), normal(1)),
        "unequal spread": Shape(normal(1), normal(3)),
        "skewed": Shape(skewed(1), skewed(1)),
        "errors of 1,000": Shape(errors(1_000, 0.1), errors(1_000, 0.1)),
        "errors of 10,000": Shape(errors(10_000, 0.02), errors(10_000, 0.02)),
        "kept runs": Shape(resampled, resampled),
        "skewed, unequal": Shape(skewed(1), skewed(3)),
        "contaminated": Shape(contaminated, normal(1)),
        "diverging": Shape(failing(0.1), failing(0.1)),
        "half failing": Shape(failing(0.5), failing(0.5), share=0.1),
        "half failing, all others worse": Shape(
            failing(0.5), lambda source, n: source.normal(9, 1, n), share=0.1
        ),
    }


def even(shape: Shape) -> float:
    """Return what is added to the second side so that it wins as often as the first."""
    source = np.random.default_rng(1)
    first, second = np.sort(shape.first(source, 200_000)), shape.second(source, 200_000)
    low, high = -5.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        below, upto = (np.searchsorted(first, second + middle, side) for side in ("left", "right"))
        low, high = (low, middle) if (below + upto).mean() / 2 > len(first) / 2 else (middle, high)
    return 0.0 if abs(low) < 0.02 else low


def cell_of(a: np.ndarray, b: np.ndarray, margin: float | None = None, looks: int = 0) -> Cell:
    """Return a comparison of lower values are better, alone in its family."""
    finite = bool(np.isfinite([a, b]).all())
    match = equivalent(paired_differences(a, b), margin) if margin and finite else None
    paired = paired_difference(a, b)
    won = Superiority() if finite else better(a, b)
    p = paired.p if finite else won.p
    return Cell(
        metric="test/error",
        mode="min",
        values={},
        n=len(a),
        diverged=not finite,
        median=None,
        interval=None,
        primary=True,
        biased=False,
        family="primary",
        pairs=len(a),
        paired=paired,
        better=won,
        decides="mean" if finite else "probability",
        p=p,
        p_holm=p and min(1.0, p * factor(looks)),
        margin=margin,
        p_equivalent=match,
        p_equivalent_holm=match,
    )


def simulated(shape: Shape, pairs: int, studies: int) -> dict[str, float]:
    """Return the shares of a cell of the table."""
    source = np.random.default_rng(pairs)
    finite = bool(np.isfinite([shape.first(source, 1000), shape.second(source, 1000)]).all())
    source = np.random.default_rng(pairs)
    moved = even(shape) if finite else 0.0
    counts = dict.fromkeys(("mean", "covers", "probability", "covers probability", "verdict"), 0)
    for _ in range(studies):
        a, b = shape.first(source, pairs), shape.second(source, pairs)
        won = better(a, b + moved)
        counts["probability"] += (won.p or 1) < 0.05
        counts["covers probability"] += (won.low or 0) <= 0.5 <= (won.high or 1)
        if finite:
            p = Flips(paired_differences(a, b)).p()
            counts["mean"] += p < 0.05
            counts["covers"] += p >= 0.05  # the interval inverts the test
        else:
            counts["verdict"] += outcome(cell_of(a, b), 1) in ("better", "worse")
    used = counts.keys() - ({"verdict"} if finite else {"mean", "covers"})
    return {name: counts[name] / studies for name in counts if name in used}


def at_margin(shape: Shape, pairs: int, studies: int) -> dict[str, float]:
    """Return how often a difference as large as the margin counts as equivalent.

    The larger share of the two sides of the margin: of the verdict, and of two one-sided tests.
    """
    source = np.random.default_rng(pairs)
    many = shape.first(source, 200_000) - shape.second(source, 200_000)
    margin = 2 * float(many.std())
    tests = {-1: 0, 1: 0}
    verdicts = {-1: 0, 1: 0}
    for _ in range(studies):
        a, b = shape.first(source, pairs), shape.second(source, pairs)
        for side in (-1, 1):
            p = equivalent(paired_differences(a + side * margin, b), margin) or 0.0
            tests[side] += p < 0.05
            verdicts[side] += p <= INSIDE
    return {"at margin": max(verdicts.values()) / studies, "tests": max(tests.values()) / studies}


def advised(pilot: int, studies: int) -> dict[str, float]:
    """Return the median advice after a pilot study and its power, at a true difference of 1 spread.

    The advice counts the look at the pilot, and the pilot's runs are part of the study that follows
    it.
    """
    source, found, numbers = np.random.default_rng(pilot), 0, []
    for _ in range(studies):
        a, b = source.normal(-1, 1, pilot), source.normal(0, 1, pilot)
        spread = float(np.std(a - b, ddof=1))
        number = max(pilot + 1, pairs_to_detect(1 / spread, factor(1)) or 0)
        more = number - pilot
        a, b = np.append(a, source.normal(-1, 1, more)), np.append(b, source.normal(0, 1, more))
        first = outcome(cell_of(a[:pilot], b[:pilot]), 1)
        found += (first if first != "undecided" else outcome(cell_of(a, b, looks=1), 1)) == "better"
        numbers.append(number)
    return {"pairs": float(np.median(numbers)), "power": found / studies}


def judged(effect: float, pairs: int, studies: int) -> dict[str, float]:
    """Return the share of each verdict on normal values with a true difference, margin 1 spread."""
    source = np.random.default_rng(pairs)
    found = [
        outcome(cell_of(source.normal(-effect, 1, pairs), source.normal(0, 1, pairs), 1.0), 1)
        for _ in range(studies)
    ]
    return {
        name: found.count(name) / studies for name in ("better", "worse", "equivalent", "undecided")
    }


def extended(corrected: bool, studies: int) -> dict[str, float]:
    """Return how often an equal study, extended while undecided, ends with a difference."""
    source, found = np.random.default_rng(0), 0
    for _ in range(studies):
        a, b = source.normal(size=30), source.normal(size=30)
        for looks, pairs in enumerate(LOOKS):
            cell = cell_of(a[:pairs], b[:pairs], looks=looks if corrected else 0)
            if (ended := outcome(cell, 1)) != "undecided":
                break
        found += ended in ("better", "worse")
    return {"found": found / studies}


def tables(known: dict[str, dict[str, float]]) -> str:
    """Return what was simulated as tables in Markdown."""
    heads = ("mean", "covers", "probability", "covers probability", "verdict")
    lines = [
        f"| simulated runs | pairs | {' | '.join(heads)} |",
        "|---|---:|" + "---:|" * len(heads),
    ]
    for name, cell in known.items():
        shape, _, pairs = name.partition(":")
        if "probability" in cell:
            shares = [f"{100 * cell[head]:.1f} %" if head in cell else "" for head in heads]
            lines.append(f"| {shape} | {pairs} | {' | '.join(shares)} |")
    lines += [
        "",
        "| simulated runs | pairs | equivalent at the margin | two one-sided tests alone |",
        "|---|---:|---:|---:|",
    ]
    for name, cell in known.items():
        if name.startswith("margin"):
            shape, _, pairs = name.removeprefix("margin ").partition(":")
            shares = [f"{100 * cell[head]:.1f} %" for head in ("at margin", "tests")]
            lines.append(f"| {shape} | {pairs} | {' | '.join(shares)} |")
    outcomes = ("better", "worse", "equivalent", "undecided")
    lines += [
        "",
        f"| true difference | pairs | {' | '.join(outcomes)} |",
        "|---:|---:|" + "---:|" * 4,
    ]
    for name, cell in known.items():
        if name.startswith("difference"):
            effect, _, pairs = name.removeprefix("difference ").partition(":")
            lines.append(
                f"| {effect} | {pairs} | "
                f"{' | '.join(f'{100 * cell[one]:.1f} %' for one in outcomes)} |"
            )
    lines += ["", "| pilot | pairs advised (median) | power |", "|---:|---:|---:|"]
    for name, cell in known.items():
        if name.startswith("advice"):
            lines.append(
                f"| {name.partition(':')[2]} | {cell['pairs']:.0f} | {100 * cell['power']:.1f} % |"
            )
    lines += ["", "| looks at 6, 15 and 30 pairs | differences found without any |", "|---|---:|"]
    lines += [
        f"| {name[6:]} | {100 * c['found']:.1f} % |" for name, c in known.items() if "found" in c
    ]
    return "\n".join(lines)


def draw(known: dict[str, dict[str, float]], file: Path) -> None:
    """Draw how often each test finds a difference where there is none."""
    names = list(
        dict.fromkeys(name.partition(":")[0] for name, cell in known.items() if "mean" in cell)
    )
    colours = style.colours(names, ())
    with mpl.rc_context(style.RC):
        figure, axes = style.framed(
            2, 2, 6.75, 0.75, [2.6], "Differences found without any, in %", ""
        )
        for ax, head, title in zip(
            axes, ("mean", "probability"), ("means", "probabilities"), strict=True
        ):
            ax.axhline(5, color=style.GREY, lw=0.8, zorder=1)
            for name in names:
                cells = [(p, known[f"{name}:{p}"][head]) for p in PAIRS if f"{name}:{p}" in known]
                ax.plot(
                    [p for p, _ in cells], [100 * share for _, share in cells], "o-", ms=3, lw=1.2
                )
                ax.lines[-1].set(color=colours[name], label=name)
            ax.set(title=f"test of {title}", xlabel="pairs", ylim=(0, 16), xscale="log")
            ax.set_xticks(PAIRS, [str(p) for p in PAIRS])
            ax.minorticks_off()
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="upper left",
            ncols=4,
            bbox_to_anchor=(0.01, 0.92),
        )
        style.save(figure, file.with_suffix(""))
    file.with_suffix(".svg").unlink()


def main() -> None:
    """Simulate the cells that are missing, and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--studies", type=int, default=20_000, help="simulated studies a cell; default: 20,000"
    )
    parser.add_argument("--cell", help="simulate only this cell, such as skewed:15")
    parser.add_argument("--draw", type=Path, help="also draw the errors of both tests")
    args = parser.parse_args()
    few = max(1, args.studies // 10)
    cells: dict[str, tuple[int, Callable[[int], dict[str, float]]]] = {
        f"{name}:{pairs}": (int(args.studies * shape.share), partial(simulated, shape, pairs))
        for pairs in PAIRS
        for name, shape in shapes().items()
    }
    cells |= {f"advice:{pilot}": (few, partial(advised, pilot)) for pilot in (6, 9)}
    cells |= {
        f"looks {name}": (args.studies, partial(extended, corrected))
        for name, corrected in (("corrected", True), ("uncorrected", False))
    }

    # Equivalence; more pairs than `EXACT` have 100,000 sign patterns, and take long
    for pairs in PAIRS:
        studies = max(1, few // 5) if pairs > EXACT else few
        for effect in (0.0, 0.5, 1.0, 2.0):
            cells[f"difference {effect}:{pairs}"] = (studies, partial(judged, effect, pairs))
        for name, shape in shapes().items():
            if name not in FAILING:
                cells[f"margin {name}:{pairs}"] = (studies, partial(at_margin, shape, pairs))

    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, (studies, simulate) in cells.items():
        if args.cell not in (None, name) or known.get(name, {}).get("studies", 0) >= studies:
            continue
        known[name] = {"studies": studies} | simulate(studies)
        FILE.write_text(json.dumps(known, indent=1) + "\n")
        print(name, known[name], flush=True)
    print(tables(known))
    if args.draw:
        draw(known, args.draw)


if __name__ == "__main__":
    main()
