"""The matplotlib names that reports use; figures are written to files and need no display."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

if "matplotlib" not in sys.modules:
    # The import raises an error for an unknown backend in MPLBACKEND; writing files needs no backend.
    _named = os.environ.pop("MPLBACKEND", None)
    import matplotlib as mpl

    if _named is not None:
        os.environ["MPLBACKEND"] = _named
        with suppress(ValueError):
            mpl.rcParams["backend"] = _named

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

__all__ = ["Axes", "Figure", "FixedLocator", "Line2D", "MaxNLocator", "mpl", "to_hex", "to_rgb"]
