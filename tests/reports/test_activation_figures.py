"""The table and the figures of activations."""

import numpy as np
import pytest
from rich.console import Console

from actlab.activations import entry, names
from actlab.cli.activations import activation_table
from actlab.reports import activation_figures


def test_table_lists_every_activation():
    console = Console(width=250)
    with console.capture() as capture:
        console.print(activation_table())
    text = capture.get()
    for name in names():
        row = next(line for line in text.splitlines() if line.split()[1:2] == [name])
        assert entry(name).formula in row
        assert entry(name).source in row
    assert "slope=0.1 " in text


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_figure_is_drawn_and_repeats(cli, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(activation_figures, "names", lambda: ["soi"])  # with random dots
    files = [tmp_path / "new" / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        assert cli("activations", "--plot", file).out == f"{file}\n"
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first[:5] in (b"\x89PNG\r", b"<?xml")


def test_figure_has_a_panel_for_every_activation():
    panels = {
        axes.get_title(loc="left"): axes for axes in activation_figures.plot_activations().axes
    }
    assert set(names()) <= set(panels)
    for name in names():
        assert (
            len([line for line in panels[name].lines if len(np.asarray(line.get_xdata())) > 2])
            == 2 + entry(name).stochastic
        )


def test_other_suffixes_are_rejected(cli):
    outcome = cli("activations", "--plot", "units.pdf")
    assert "--plot: expected a file .png or .svg, got 'units.pdf'" in outcome.rejection


def test_an_activation_that_cannot_be_drawn_is_named_with_its_error(tmp_path):
    (tmp_path / "mine.py").write_text("def boom(x):\n    raise ValueError('needs 4 dimensions')\n")
    compared = {"relu": "relu", "boom": f"{tmp_path}/mine.py:boom"}
    line = activation_figures.plot_compared(compared).get_supxlabel()
    assert line.startswith("boom is not drawn: ")
    assert line.endswith("line 2: raise ValueError('needs 4 dimensions'))")
