"""The style of figures: each activation has one colour in all figures, and equal figures give equal files."""

from __future__ import annotations

import colorsys
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from actlab.errors import ActlabError
from actlab.reports.canvas import (
    Axes,
    Figure,
    FixedLocator,
    Line2D,
    MaxNLocator,
    mpl,
    to_hex,
    to_rgb,
)

INK, GREY = "#222222", "#6b7078"
DPI = 200
PAGE = 9.0  # inches: height of the text on a page of a paper
HEAD, EDGE = 0.12, 0.02  # inches: height above and below the axes of a figure without texts

# Okabe and Ito's colours, safe for colour-blind readers; activations of one family have similar
# hues.
_KNOWN = {
    "gelu": "#0072B2",
    "gelu_tanh": "#0A4F9E",
    "gelu_sigmoid": "#56B4E9",
    "relu": "#D55E00",
    "elu": "#009E73",
    "soi": "#CC79A7",
    "silu": "#7B4FA3",
    "leaky_relu": "#E69F00",
    "srelu": "#8C1C3C",
    "identity": "#777777",
    "relu_squared": "#9C3D00",
    "mish": "#A57BD1",
    "softplus": "#F2885A",
    "sine": "#C8102E",
    "gauss": "#6A9E1F",
}
_FURTHER = ("#B8860B", "#117777", "#AA4499", "#6B4226", "#44AA99", "#DDAA33", "#333333", "#999933")

# The user's activations; actlab's own are neither as strong nor as dark
_OWN = (
    "#D5006D",
    "#111111",
)
_LAYER = re.compile(r"layer (\d+)")
_LEAST_LUMINANCE = 0.24  # on a dark background: a contrast of 5 against #14161A

_UNDATED: dict[str, Any] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "svg.hashsalt": "actlab",
}


class Paper(NamedTuple):
    """A figure for a paper: no title and no caption, which the paper's text provides."""

    columns: Literal[1, 2] = 1  # of a page with two
    font: Literal["sans", "serif"] = "sans"  # DejaVu Sans, or STIX, similar to Times

    @property
    def width(self) -> float:
        """Width in inches: that of ICML's columns."""
        return {1: 3.25, 2: 6.75}[self.columns]

    @property
    def rc(self) -> dict[Any, Any]:
        """The settings of matplotlib, over `RC`; fonts are embedded as TrueType, as publishers require."""
        family = {"sans": "DejaVu Sans", "serif": "STIXGeneral"}[self.font]
        return {**RC, "font.family": family, "axes.titlesize": 8, "pdf.fonttype": 42}


def colours(labels: Iterable[str], users: Collection[str] = ()) -> dict[str, str]:
    """Return a colour for each label: fixed for usual activations, strong for the user's, layers by depth."""
    by_label: dict[str, str] = {}
    labels = list(labels)
    depths = {label: int(layer[1]) for label in labels if (layer := _LAYER.fullmatch(label))}
    for label in labels:
        if label in depths:
            colour = mpl.colormaps["viridis"](0.85 * depths[label] / max(depths.values()))
            by_label[label] = to_hex(colour).upper()
            continue
        mine = label in users
        palette = _OWN if mine else _FURTHER
        used = [known for known in by_label if known not in _KNOWN and (known in users) == mine]
        again, number = divmod(len(used), len(palette))
        by_label.setdefault(label, _KNOWN.get(label) or _varied(palette[number], again))
    return by_label


def _varied(colour: str, again: int) -> str:
    """Return a different colour for each time (``again``) that a colour is used again."""
    if not again:
        return colour
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    varied = (hue + 0.11 * again) % 1, 0.3 + (lightness + 0.17 * again) % 0.4, max(saturation, 0.5)
    return to_hex(colorsys.hls_to_rgb(*varied)).upper()


def on_dark(colour: str) -> str:
    """Return the colour, lightened as far as a dark background requires."""
    rgb = to_rgb(colour)
    hue, lightness, saturation = colorsys.rgb_to_hls(*rgb)
    while _luminance(*rgb) < _LEAST_LUMINANCE:
        lightness += 0.01
        rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
    return to_hex(rgb).upper()


def _luminance(*rgb: float) -> float:
    """Return the relative luminance of an sRGB colour, as defined for contrast in WCAG."""
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def name_rows(ax: Axes, labels: Sequence[str], users: Collection[str], shown: bool = True) -> None:
    """Put labels at the rows 0, 1, … of axes from the top, those of ``users`` in bold, without an axis line."""
    ax.set_yticks(range(len(labels)), labels if shown else [""] * len(labels))
    for tick, label in zip(ax.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("bold" if label in users else "normal")
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def show_ratios(ax: Axes, low: float, high: float, most: int) -> None:
    """Make the x axis logarithmic, with ticks at 1, 2, 5, 10, …, or ``most`` others where few of these fit.

    More than twice as many are thinned to powers of ten.
    """
    ticks = {base * 10.0**power: base for power in range(-4, 4) for base in (1, 2, 5)}
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) > 2 * most:
        inside = [tick for tick in inside if ticks[tick] == 1]
    ax.set_xscale("log")
    others = MaxNLocator(most, steps=[1, 2, 5, 10])
    ax.xaxis.set_major_locator(FixedLocator(inside) if len(inside) > 2 else others)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()


def framed(
    name: str,
    number: int,
    columns: int,
    width: float,
    rows: Sequence[float],
    title: str,
    caption: str,
    legends: Sequence[list[Line2D]] = (),
    paper: Paper | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``number`` axes between title, legends and caption; for a paper without both texts.

    All sizes are in inches: ``rows`` are the heights of the rows of axes. Each legend is a line of
    handles.
    """
    above = [] if paper else textwrap.wrap(title, int(width * 11))
    below = [] if paper else textwrap.wrap(caption, int(width * 20.5))
    down, foot = HEAD - EDGE + 0.17 * len(above), 0.1 + 0.135 * len(below) if below else EDGE
    head = down + 0.17 * len(legends) + EDGE
    height = head + sum(rows) + foot
    if paper and height > PAGE:
        remedy = "give --paper 2, or fewer panels" if paper.columns == 1 else "give fewer panels"
        raise ActlabError(
            f"figure {name!r} has {number} panels and would be {height:.1f} inches high, but a page has "
            f"{PAGE:g}: {remedy}"
        )
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", rect=(0, foot / height, 1, 1 - (head + foot) / height))
    axes = list(figure.subplots(len(rows), columns, squeeze=False, height_ratios=rows).flat)
    for unused in axes[number:]:
        unused.set_visible(False)
    texts: dict[str, Any] = {"x": 0.1 / width, "linespacing": 1.35}
    figure.text(
        y=1 - 0.06 / height, s="\n".join(above), va="top", fontsize=9.5, fontweight="bold", **texts
    )
    figure.text(y=0.07 / height, s="\n".join(below), va="bottom", fontsize=6.5, color=GREY, **texts)
    inside = {"borderaxespad": 0, "borderpad": 0.2, "columnspacing": 1.4}
    for line in legends:
        corner = 0.08 / width, 1 - down / height
        figure.legend(
            handles=line, loc="upper left", bbox_to_anchor=corner, ncols=len(line), **inside
        )
        down += 0.17
    return figure, axes[:number]


def in_legend(label: str) -> str:
    """Return a label as a legend shows it: matplotlib leaves out what begins with an underscore."""
    return f" {label}" if label.startswith("_") else label


def save(figure: Figure, stem: Path, paper: Paper | None = None) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``, or ``stem.pdf`` for a paper, without dates; return their paths."""
    suffixes = [".pdf"] if paper else [".svg", ".png"]
    return [write(figure, stem.with_name(stem.name + suffix), paper) for suffix in suffixes]


def write(figure: Figure, path: Path, paper: Paper | None = None, dpi: float = DPI) -> Path:
    """Write a figure without its date, in the format of the suffix; create the folder and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(paper.rc if paper else RC):
        figure.savefig(
            path, dpi=dpi if path.suffix == ".png" else "figure", metadata=_UNDATED[path.suffix]
        )
    return path
