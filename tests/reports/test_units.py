"""The table and the figure of the units."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from actlab.activations import entry, names
from actlab.cli.activations import unit_table
from actlab.errors import ActlabError
from actlab.reports import units


def test_table_lists_every_unit() -> None:
    console = Console(width=250)
    with console.capture() as capture:
        console.print(unit_table())
    text = capture.get()
    for name in names():
        row = next(line for line in text.splitlines() if line.split()[1:2] == [name])
        assert entry(name).formula in row
        assert entry(name).source in row
    assert "slope=0.1 " in text


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_figure_is_drawn_and_repeats(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "names", lambda: ["soi"])  # with random dots
    first = units.plot_units(tmp_path / "new" / f"a.{suffix}")
    second = units.plot_units(str(tmp_path / f"b.{suffix}"))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_figure_has_a_panel_for_every_unit() -> None:
    figure: Figure = units._figure()
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    assert set(names()) <= set(panels)
    for name in names():
        assert (
            len([line for line in panels[name].lines if len(np.asarray(line.get_xdata())) > 2])
            == 2 + entry(name).stochastic
        )


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ActlabError, match=r"'units.pdf': the suffix must be .png or .svg"):
        units.plot_units(tmp_path / "units.pdf")


def test_an_activation_that_cannot_be_drawn_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def boom(x):\n    raise ValueError('needs 4 dimensions')\n")
    compared = {"relu": "relu", "boom": f"{tmp_path}/mine.py:boom"}
    shown: list[str] = []
    monkeypatch.setattr(Figure, "supxlabel", lambda self, text, **options: shown.append(text))
    assert units.plot_compared(compared, tmp_path / "a.png") == tmp_path / "a.png"
    (line,) = shown
    assert line.startswith("boom is not drawn: ")
    assert line.endswith("line 2: raise ValueError('needs 4 dimensions'))")
    assert (tmp_path / "a.png").exists()
