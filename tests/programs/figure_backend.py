"""Draws a figure; prints the backend that the environment names, and whether that of matplotlib is SVG."""

import io
import os

from actlab.reports.canvas import Figure, mpl

Figure().savefig(io.BytesIO())
print(os.environ["MPLBACKEND"], dict.__getitem__(mpl.rcParams, "backend") == "svg")
