"""Draws a figure; prints the backend that the environment names, and whether that of matplotlib is SVG."""

import os

from actlab.reports.canvas import Figure, FigureCanvasAgg, mpl

FigureCanvasAgg(Figure()).draw()
print(os.environ["MPLBACKEND"], dict.__getitem__(mpl.rcParams, "backend") == "svg")
