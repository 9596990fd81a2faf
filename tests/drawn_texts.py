"""The texts of a drawn figure: none may overlap another or leave the figure."""

from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg

from actlab.reports.canvas import Figure, mpl


def misplaced(figure: Figure) -> list[tuple[str, str]]:
    """The pairs of texts that overlap, and those that leave the figure, beside ""."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    hidden: set[Any] = set()
    for axes in figure.axes:
        if not axes.get_visible():
            hidden |= set(axes.findobj(mpl.text.Text))
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            hidden |= {
                tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high
            }
    texts: list[Any] = [
        t for t in figure.findobj(mpl.text.Text) if t.get_text().strip() and t.get_visible()
    ]
    renderer = canvas.get_renderer()
    boxes = [
        (t.get_text(), t.get_window_extent(renderer).shrunk(0.9, 0.8))
        for t in texts
        if t not in hidden
    ]
    left = [(text, "") for text, box in boxes if box.x0 < 0 or box.x1 > figure.bbox.x1]
    return left + [
        (text, other)
        for number, (text, box) in enumerate(boxes)
        for other, beside in boxes[:number]
        if box.overlaps(beside)
    ]
