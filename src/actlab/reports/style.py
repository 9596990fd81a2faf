"""The style of figures: each activation has one colour in all figures, and equal figures give equal files."""

from __future__ import annotations

import colorsys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from actlab.errors import ActlabError
from actlab.reports.canvas import Figure, FigureCanvasAgg

INK, GREY = "#222222", "#6b7078"
DPI = 200
PAGE = 9.0  # inches: height of the text on a page of a paper

# Okabe and Ito's colours, safe for colour-blind readers; activations of one family have similar hues.
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
}
_FURTHER = ("#B8860B", "#117777", "#AA4499", "#6B4226", "#44AA99", "#DDAA33", "#333333", "#999933")

# The user's activations; actlab's own colours are neither as strong nor as dark.
_OWN = ("#D5006D", "#111111")

_LEAST_LUMINANCE = 0.24  # on a dark background: a contrast of 5 against #14161A

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
    """A figure for a paper: no title and no caption, which the paper's text provides.

    Args:
        columns: 1 or 2 columns of a page with two.
        font: ``sans`` (DejaVu Sans) or ``serif`` (STIX, similar to Times).
    """

    columns: Literal[1, 2] = 1
    font: Literal["sans", "serif"] = "sans"

    @property
    def width(self) -> float:
        """Width in inches: that of ICML's columns."""
        return {1: 3.25, 2: 6.75}[self.columns]

    @property
    def rc(self) -> dict[Any, Any]:
        """The settings of matplotlib, over `RC`; fonts are embedded as TrueType, as publishers require."""
        family = {"sans": "DejaVu Sans", "serif": "STIXGeneral"}[self.font]
        return {**RC, "font.family": family, "axes.titlesize": 8, "pdf.fonttype": 42}

    def check(self, name: str, panels: int, height: float) -> None:
        """Raise an ActlabError for a figure that is higher than a page.

        Args:
            name: name of the figure.
            panels: number of its panels.
            height: in inches.
        """
        if height > PAGE:
            remedy = "give --paper 2, or fewer panels" if self.columns == 1 else "give fewer panels"
            raise ActlabError(
                f"figure {name!r} has {panels} panels and would be {height:.1f} inches high, but a page has "
                f"{PAGE:g}: {remedy}"
            )


def colours(labels: Iterable[str], own: Collection[str] = ()) -> dict[str, str]:
    """Return a colour for each label: fixed for the papers' activations, further ones in order for the rest.

    Args:
        labels: the labels, in order.
        own: labels of the user's activations, which have strong colours of their own.
    """
    found: dict[str, str] = {}
    for label in labels:
        mine = label in own
        palette = _OWN if mine else _FURTHER
        used = [known for known in found if known not in _KNOWN and (known in own) == mine]
        again, number = divmod(len(used), len(palette))
        found.setdefault(label, _KNOWN.get(label) or _varied(palette[number], again))
    return found


def _varied(colour: str, again: int) -> str:
    """Return a different colour for each time (``again``) that a colour is used again."""
    if not again:
        return colour
    hue, lightness, saturation = colorsys.rgb_to_hls(*_rgb(colour))
    varied = (hue + 0.11 * again) % 1, 0.3 + (lightness + 0.17 * again) % 0.4, max(saturation, 0.5)
    return _hex(*colorsys.hls_to_rgb(*varied))


def on_dark(colour: str) -> str:
    """Return the colour, lightened as far as a dark background requires.

    >>> on_dark("#E69F00"), on_dark("#333333")
    ('#E69F00', '#878787')
    """
    r, g, b = _rgb(colour)
    hue, lightness, saturation = colorsys.rgb_to_hls(r, g, b)
    while _luminance(r, g, b) < _LEAST_LUMINANCE:
        lightness += 0.01
        r, g, b = colorsys.hls_to_rgb(hue, lightness, saturation)
    return _hex(r, g, b)


def _rgb(colour: str) -> tuple[float, float, float]:
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return r, g, b


def _hex(*rgb: float) -> str:
    return "#" + "".join(f"{round(255 * c):02X}" for c in rgb)


def _luminance(*rgb: float) -> float:
    """Return the relative luminance of an sRGB colour, as defined for contrast in WCAG."""
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def add_text(figure: Figure, text: str, down: float, **look: Any) -> None:
    """Add text at the left edge, ``down`` inches below the upper edge."""
    width, height = figure.get_size_inches()
    figure.text(0.1 / width, 1 - down / height, text, linespacing=1.35, **look)


def save(figure: Figure, stem: Path, paper: bool = False) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``, or ``stem.pdf`` for a paper; return their paths.

    Files contain no dates, so that equal figures give equal files.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    if paper:
        pdf = stem.with_name(f"{stem.name}.pdf")
        figure.savefig(pdf, metadata={"CreationDate": None, "Producer": None, "Creator": None})
        return [pdf]
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    figure.savefig(svg, metadata={"Date": None})
    figure.savefig(png, dpi=DPI, metadata={"Software": None})
    return [svg, png]
