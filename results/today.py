"""State what today's networks gave: ``python results/today.py``.

Writes the page gates.md, and the pictures gates and runs as .png and .svg, from the runs that are
kept here.

The page says whether a gate makes the choice of the activation matter less. The question was stated
in configs/studies/gpt_gates.yaml before any run: for each activation a,

    D(a) = [loss(a) − loss(GELU)] plain − [loss(a) − loss(GELU)] gated,

by seed, each activation in each form at the learning rate selected for it; a sign-flip test of its
mean, Holm's correction over the activations, and a margin of .02 nats; and the standard deviation
over activations of their mean losses, gated divided by plain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from actlab.analysis.differences import Difference, equivalent, paired_difference
from actlab.analysis.statistics import INSIDE, LEVEL, Array, holm, p_text
from actlab.reports import style

HERE = Path(__file__).parent
FORMS, REFERENCE, MARGIN = ("plain", "gated"), "gelu", 0.02
NAMES = {
    "gelu": "GELU",
    "relu": "ReLU",
    "silu": "SiLU",
    "relu_squared": "ReLU²",
    "mish": "Mish",
    "tanh": "tanh",
    "elu": "ELU",
    "leaky_relu": "leaky ReLU",
    "sine": "sine",
    "identity": "identity",
}
# Column, label, whether low values are good, the axis, and the value of chance where runs come near
# it.
PICTURES = {
    "gpt_plain_init": ("test/loss@last", "test loss, nats a byte", True, "linear", None),
    "pinn_helmholtz": ("test/relative_error@last", "relative L2 error", True, "log", 1.0),
    "inr_image": ("test/psnr@last", "PSNR of held-out pixels, dB", False, "linear", 12.26),
}
DRAWS = 10_000  # resamples of the seeds
HEAD = f"""# Does a gate make the choice of the activation matter less?

`python results/today.py` computes this page from the runs of
[gpt_gates](../results/gpt_gates/README.md); a test compares the two. The study file states the
question, the test and the margin, and was committed before the runs.

![Losses in both forms, and D](gpt_gates/gates.png)

D(a) is the difference loss(a) − loss(GELU) in the plain form minus the same difference in the gated
form, in nats per byte of test loss, by seed. Each activation has its selected learning rate in each
form. The table shows means with 95 % intervals that invert the sign-flip test and are not
corrected. It shows the p-value of this test alone, and after Holm's correction over the
activations. The margin is {MARGIN} nats; the column `p within` has two one-sided tests. D lies
within the margin if this p-value is at most {INSIDE}, and below {LEVEL} after Holm's correction.
"""


class Row(NamedTuple):
    """An activation: its losses, differences to GELU by form, and D with p-values."""

    name: str
    rates: tuple[float, ...]
    means: tuple[float, ...]
    to_gelu: tuple[Difference, ...]
    d: Difference
    p_holm: float
    p_within: float | None
    p_within_holm: float | None

    @property
    def verdict(self) -> str:
        """What the tests say of D at 5 %."""
        assert self.d.mean is not None
        within = False
        if self.p_within is not None and self.p_within_holm is not None:
            # The rule of studies: the 97.5 % interval lies inside the margin, too
            within = self.p_within <= INSIDE and self.p_within_holm < LEVEL
        if self.p_holm < LEVEL:
            gelu = [difference.mean or 0.0 for difference in self.to_gelu]
            words = (
                "closer to GELU with the gate"
                if abs(gelu[1]) < abs(gelu[0])
                else "farther with the gate"
            )
            return f"{words}, by less than the margin" if within else words
        return "the same within the margin" if within else "open"


def read(study: Path = HERE / "gpt_gates") -> tuple[Array, Array]:
    """Return the losses ``(2 forms, A activations, S seeds)`` and learning rates ``(2, A)``."""
    runs = pd.read_csv(study / "values.csv")
    runs = runs[runs["chosen"] == 1]
    losses, rates = (
        runs.pivot_table(column, ["block", "model.activation"], "seed", sort=False)
        for column in ("test/loss@last", "model.optimizer.lr")
    )
    shape = len(FORMS), len(NAMES), -1
    wanted = pd.MultiIndex.from_product([FORMS, NAMES])
    found = losses.reindex(wanted).to_numpy().reshape(shape)
    if not np.isfinite(found).all():
        raise SystemExit(
            f"{study}/values.csv: a loss is missing or not finite; each form needs the same seeds"
        )
    return found, rates.reindex(wanted).to_numpy().reshape(shape)[..., 0]


def judged(losses: Array, rates: Array) -> list[Row]:
    """Return all activations but GELU, by their D."""
    names, reference = list(NAMES), list(NAMES).index(REFERENCE)
    to_gelu = losses - losses[:, [reference]]
    d = to_gelu[0] - to_gelu[1]
    zero = np.zeros(d.shape[1]).tolist()
    others = [a for a in range(len(names)) if a != reference]
    found = {a: paired_difference(d[a].tolist(), zero) for a in others}
    corrected = dict(zip(others, holm([found[a].p for a in others]), strict=True))
    within = {a: equivalent(d[a].tolist(), MARGIN) for a in others}
    within_corrected = dict(zip(others, holm([within[a] for a in others]), strict=True))
    rows = []
    for a in others:
        of_forms = (paired_difference(form[a].tolist(), zero) for form in to_gelu)
        means = losses[:, a].mean(-1).tolist()
        p_holm = corrected[a]
        assert p_holm is not None
        rows.append(
            Row(
                names[a],
                tuple(rates[:, a]),
                tuple(means),
                tuple(of_forms),
                found[a],
                p_holm,
                within[a],
                within_corrected[a],
            )
        )
    return sorted(rows, key=lambda row: -(row.d.mean or 0.0))


def spreads(losses: Array) -> tuple[float, float, float]:
    """Return the deviations over activations of mean losses, plain and gated, and their ratio."""
    plain, gated = losses.mean(-1).std(-1, ddof=1)
    return float(plain), float(gated), float(gated / plain)


def without(losses: Array, *names: str) -> Array:
    """Return the losses of the other activations."""
    return losses[:, [number for number, name in enumerate(NAMES) if name not in names]]


def ratio_interval(losses: Array, activations: bool = False) -> tuple[float, float]:
    """Return the 95 % interval of the ratio by a bootstrap over seeds, or ``activations`` too."""
    rng, (_, number, seeds) = np.random.default_rng(0), losses.shape
    draws = rng.integers(0, seeds, (DRAWS, seeds))
    means = losses[..., draws].mean(-1)  # (2, A, DRAWS)
    if activations:
        means = np.take_along_axis(means, rng.integers(0, number, (1, number, DRAWS)), 1)
    plain, gated = means.std(1, ddof=1)
    low, high = np.quantile(gated / plain, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def signed(value: float | None) -> str:
    """Return a difference in nats, with sign."""
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")


def between(one: Difference) -> str:
    """Return a mean with its interval."""
    return f"{signed(one.mean)} [{signed(one.low)}, {signed(one.high)}]"


def page(losses: Array, rates: Array) -> str:
    """Return the statement as Markdown."""
    rows, (plain, gated, ratio), (low, high) = (
        judged(losses, rates),
        spreads(losses),
        ratio_interval(losses),
    )
    gelu = losses[:, list(NAMES).index(REFERENCE)].mean(-1)
    fewer = {
        names: spreads(without(losses, *names))[2]
        for names in (("identity",), ("sine",), ("identity", "elu"))
    }
    least, most = ratio_interval(losses, activations=True)
    heads = (
        "activation | loss, plain and gated | rates | to GELU, plain | to GELU, gated | D | "
        "p | p, Holm"
    )
    lines = [
        HEAD,
        f"GELU itself: {gelu[0]:.3f} plain, {gelu[1]:.3f} gated; {losses.shape[-1]} seeds.",
        "",
        f"| {heads} | p within | outcome |",
        "|---" * 10 + "|",
    ]
    for row in rows:
        cells: list[Any] = [NAMES[row.name], ", ".join(f"{mean:.3f}" for mean in row.means)]
        cells += [
            ", ".join(f"{rate:g}" for rate in row.rates),
            *map(between, row.to_gelu),
            between(row.d),
        ]
        cells += [p_text(p) if p is not None else "–" for p in (row.d.p, row.p_holm, row.p_within)]
        lines.append(f"| {' | '.join([*cells, row.verdict])} |")
    less = sum(row.verdict.startswith("closer") for row in rows)
    more = sum(row.verdict.startswith("farther") for row in rows)
    lines += [
        "",
        f"**Of {len(rows)} activations, {less} come significantly closer to GELU if a gate "
        f"multiplies them, and {more} move away.** The standard deviation of the mean losses over "
        f"the {len(NAMES)} activations is {plain:.3f} nats in the plain form and {gated:.3f} in "
        f"the gated form: **a ratio of {ratio:.2f}**. Its 95 % interval, from {DRAWS:,} resamples "
        f"of the seeds, is {low:.2f} to {high:.2f}. The ratio depends on the list of activations: "
        f"without the identity it is {fewer['identity',]:.2f}, without sine {fewer['sine',]:.2f}, "
        f"and without identity and ELU {fewer['identity', 'elu']:.2f}. It is {least:.2f} to "
        f"{most:.2f} if activations are resampled too. None of these ratios was stated before the "
        "runs.",
        "",
        "These results cover other seeds of a decoder with 135,000 parameters, after 800 updates, "
        "on one test passage of 16,640 bytes. They do not cover other texts or sizes.",
    ]
    return "\n".join(lines) + "\n"


def draw(losses: Array, rates: Array, stem: Path) -> None:
    """Draw the losses of both forms, and D with its intervals and margin."""
    rows, names = judged(losses, rates), list(NAMES)
    means = losses.mean(-1)
    order = sorted(range(len(names)), key=lambda a: means[0, a])
    by_name = {row.name: row for row in rows}
    with plt.rc_context(style.RC):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(7.5, 3.3), sharey=True, layout="constrained"
        )
        for y, a in enumerate(order):
            left.plot(means[:, a], [y, y], color=style.GREY, lw=1, zorder=1)
            left.plot(means[0, a], y, "o", color="#0072b2", ms=6, label="plain" if not y else None)
            left.plot(means[1, a], y, "D", color="#d55e00", ms=5, label="gated" if not y else None)
            if row := by_name.get(names[a]):
                right.plot([row.d.low, row.d.high], [y, y], color="black", lw=1.3)
                right.plot(
                    row.d.mean,
                    y,
                    "o",
                    color="black",
                    mfc="black" if row.p_holm < LEVEL else "white",
                    ms=5,
                )
        left.set_yticks(range(len(order)), [NAMES[names[a]] for a in order])
        left.invert_yaxis()
        left.set(xlabel="test loss, nats a byte", title="Loss with each activation")
        left.legend(loc="upper right")
        right.tick_params(axis="y", length=0)
        right.axvspan(-MARGIN, MARGIN, color="0.92", lw=0, zorder=0)
        right.axvline(0, color=style.GREY, lw=0.8, zorder=0)
        right.set(xlabel="D, nats a byte", title="D: difference to GELU, plain − gated")
        style.save(figure, stem)
        plt.close(figure)


def draw_runs(study: str) -> None:
    """Draw every run of the second stage of a study, by activation, with its median."""
    column, label, low, scale, chance = PICTURES[study]
    runs = pd.read_csv(HERE / study / "values.csv").query("chosen == 1")
    medians = runs.groupby("model.activation")[column].median().sort_values(ascending=low)
    with plt.rc_context(style.RC):
        figure, ax = plt.subplots(figsize=(5.0, 0.26 * len(medians) + 0.9), layout="constrained")
        for y, (name, median) in enumerate(medians.items()):
            values = runs.loc[runs["model.activation"] == name, column]
            ax.plot(values, [y] * len(values), "o", color=style.GREY, ms=3.5, alpha=0.5, mew=0)
            ax.plot([median, median], [y - 0.3, y + 0.3], color="#0072b2", lw=2.2)
        if chance is not None:
            ax.axvline(chance, color=style.GREY, lw=0.8, ls=":", zorder=0)
            ax.text(chance, -0.8, "chance", ha="center", va="bottom", color=style.GREY)
        ax.set_yticks(
            range(len(medians)),
            [{**NAMES, "gauss": "Gaussian"}[str(name)] for name in medians.index],
        )
        ax.invert_yaxis()
        ax.set(xlabel=label, xscale=scale)
        style.save(figure, HERE / study / "runs")
        plt.close(figure)


if __name__ == "__main__":
    kept = read()
    (HERE / "gates.md").write_text(page(*kept), encoding="utf-8")
    draw(*kept, HERE / "gpt_gates/gates")
    for path in HERE.glob("*/values.csv"):
        if path.parent.name in PICTURES:
            draw_runs(path.parent.name)
