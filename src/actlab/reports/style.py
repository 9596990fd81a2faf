"""The style of figures: an activation has one colour in all figures, equal figures equal files."""

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

INK = "#222222"
GREY = "#6b7078"
DPI = 200

# Heights in inches: the text on a page of a paper, the space above and below the axes
# of a figure without texts, and lines of the title, a legend and the caption
PAGE = 9.0
HEAD = 0.12
EDGE = 0.02
_TITLE_LINE = 0.17
_LEGEND_LINE = 0.17
_CAPTION_LINE = 0.135

# Okabe and Ito's colours, safe for colour-blind readers; activations of one family have
# similar hues.
_FIXED = {
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
_FURTHER = (
    "#B8860B",
    "#117777",
    "#AA4499",
    "#6B4226",
    "#44AA99",
    "#DDAA33",
    "#333333",
    "#999933",
)

# The user's activations; actlab's own are neither as strong nor as dark
_OWN = ("#D5006D", "#111111")
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
    """The form of a figure for a paper, whose text provides title and caption."""

    columns: Literal[1, 2] = 1  # of a page with two columns
    font: Literal["sans", "serif"] = "sans"  # DejaVu Sans, or STIX, similar to Times

    @property
    def width(self) -> float:
        """Width in inches, as of ICML's columns."""
        return 3.25 if self.columns == 1 else 6.75

    @property
    def rc(self) -> dict[Any, Any]:
        """The settings of matplotlib, over `RC`.

        Fonts are embedded as TrueType, as publishers require.
        """
        family = {"sans": "DejaVu Sans", "serif": "STIXGeneral"}[self.font]
        return {**RC, "font.family": family, "axes.titlesize": 8, "pdf.fonttype": 42}


def colours(labels: Iterable[str], users: Collection[str] = ()) -> dict[str, str]:
    """Return a colour for each label.

    Usual activations have fixed colours and the user's have strong ones. The colours of layers go
    by depth.
    """
    colour_by_label: dict[str, str] = {}
    labels = dict.fromkeys(labels)

    # Layers
    depths = {}
    for label in labels:
        layer = _LAYER.fullmatch(label)
        if layer:
            depths[label] = int(layer[1])

    # How often a colour of each palette was used
    used = {_OWN: 0, _FURTHER: 0}
    for label in labels:
        if label in depths:
            colour = mpl.colormaps["viridis"](
                0.85 * depths[label] / max(depths.values())
            )
            colour_by_label[label] = to_hex(colour).upper()
        elif label in _FIXED:
            colour_by_label[label] = _FIXED[label]
        else:
            palette = _OWN if label in users else _FURTHER
            repetition, index = divmod(used[palette], len(palette))
            used[palette] += 1
            colour_by_label[label] = _varied(palette[index], repetition)
    return colour_by_label


def _varied(colour: str, repetition: int) -> str:
    """Return a different colour for each repeated use of a colour."""
    if not repetition:
        return colour
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    hue = (hue + 0.11 * repetition) % 1
    lightness = 0.3 + (lightness + 0.17 * repetition) % 0.4
    rgb = colorsys.hls_to_rgb(hue, lightness, max(saturation, 0.5))
    return to_hex(rgb).upper()


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
    luminance = 0.0
    for weight, value in zip((0.2126, 0.7152, 0.0722), rgb, strict=True):
        linear = value / 12.92
        if value > 0.04045:
            linear = ((value + 0.055) / 1.055) ** 2.4
        luminance += weight * linear
    return luminance


def name_rows(
    ax: Axes, labels: Sequence[str], users: Collection[str], shown: bool = True
) -> None:
    """Name the rows 0, 1, … of axes from the top, without an axis line.

    The labels of ``users`` are bold. If not ``shown``, rows have their places without text.
    """
    # Labels
    texts = labels
    if not shown:
        texts = [""] * len(labels)
    ax.set_yticks(range(len(labels)), texts)
    for tick, label in zip(ax.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("bold" if label in users else "normal")

    # Axis
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def show_ratios(ax: Axes, low: float, high: float, most: int) -> None:
    """Make the x axis logarithmic, with ticks at 1, 2, 5 and 10 times powers of ten.

    More than twice ``most`` ticks are thinned to powers of ten. Where fewer than three fit, there
    are up to ``most`` others.
    """
    # Ticks between the limits
    powers = [10.0**exponent for exponent in range(-4, 4)]
    ticks = []
    for power in powers:
        ticks += [power, 2 * power, 5 * power]
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) > 2 * most:
        inside = [tick for tick in powers if low <= tick <= high]

    # Let matplotlib find ticks where few fit
    locator: FixedLocator | MaxNLocator = MaxNLocator(most, steps=[1, 2, 5, 10])
    if len(inside) > 2:
        locator = FixedLocator(inside)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(locator)
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
    """Return a figure with ``number`` axes between title, legends and caption.

    Args:
        name: of the figure, for messages.
        number: how many axes the figure has.
        columns: how many axes are next to each other.
        width: in inches.
        rows: heights of the rows of axes, in inches.
        title: text above.
        caption: text below.
        legends: a line of handles for each.
        paper: the form of a figure without title and caption.

    Raises:
        ActlabError: for a figure that is higher than a page of the paper.
    """
    # Wrap the texts
    title_lines = []
    caption_lines = []
    if not paper:
        title_lines = textwrap.wrap(title, int(width * 11))
        caption_lines = textwrap.wrap(caption, int(width * 20.5))

    # Heights
    down = HEAD - EDGE + _TITLE_LINE * len(title_lines)
    head = down + _LEGEND_LINE * len(legends) + EDGE
    foot = EDGE
    if caption_lines:
        foot = 0.1 + _CAPTION_LINE * len(caption_lines)
    height = head + sum(rows) + foot
    if paper and height > PAGE:
        remedy = "Use fewer panels."
        if paper.columns == 1:
            remedy = "Use --paper 2, or fewer panels."
        raise ActlabError(
            f"figure {name!r} has {number} panels and would be {height:.1f} inches high, "
            f"but a page has {PAGE:g}. {remedy}"
        )

    # Axes
    figure = Figure(figsize=(width, height))
    inside = (0, foot / height, 1, 1 - (head + foot) / height)
    figure.set_layout_engine("constrained", rect=inside)
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=rows)
    axes = list(grid.flat)
    for unused in axes[number:]:
        unused.set_visible(False)

    # Texts
    look: dict[str, Any] = {"x": 0.1 / width, "linespacing": 1.35}
    text = "\n".join(title_lines)
    top = 1 - 0.06 / height
    figure.text(y=top, s=text, va="top", fontsize=9.5, fontweight="bold", **look)
    text = "\n".join(caption_lines)
    figure.text(y=0.07 / height, s=text, va="bottom", fontsize=6.5, color=GREY, **look)

    # Legends
    for handles in legends:
        figure.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.08 / width, 1 - down / height),
            ncols=len(handles),
            borderaxespad=0,
            borderpad=0.2,
            columnspacing=1.4,
        )
        down += _LEGEND_LINE
    return figure, axes[:number]


def in_legend(label: str) -> str:
    """Return a label for a legend; matplotlib leaves out texts that begin with an underscore."""
    if label.startswith("_"):
        return f" {label}"
    return label


def save(figure: Figure, stem: Path, paper: Paper | None = None) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``, or for a paper ``stem.pdf``; return their paths."""
    suffixes = [".pdf"] if paper else [".svg", ".png"]
    return [
        write(figure, stem.with_name(stem.name + suffix), paper) for suffix in suffixes
    ]


def write(
    figure: Figure, path: Path, paper: Paper | None = None, dpi: float = DPI
) -> Path:
    """Write a figure without its date, in the format of the suffix, and return the path.

    The folder is created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    resolution: float | Literal["figure"] = "figure"
    if path.suffix == ".png":
        resolution = dpi
    with mpl.rc_context(paper.rc if paper else RC):
        figure.savefig(path, dpi=resolution, metadata=_UNDATED[path.suffix])
    return path
