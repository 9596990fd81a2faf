"""The matplotlib names that reports use; figures are written to files and need no display."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

__all__ = [
    "Axes",
    "Figure",
    "FixedLocator",
    "Line2D",
    "MaxNLocator",
    "mpl",
    "to_hex",
    "to_rgb",
]
