"""Figures: what they show, that they can be drawn again, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from actlab.errors import ActlabError
from actlab.reports import figures, style
from actlab.reports.plots import read_entry


def test_each_figure_is_drawn_as_svg_and_png(written: Any, tmp_path: Path) -> None:
    svg, png = figures.draw(written(), tmp_path / "figures")
    assert (svg.name, png.name) == ("curves.svg", "curves.png")
    assert "<dc:date>" not in svg.read_text()
    pixels = imread(png)
    assert pixels.shape[1] >= 6.6 * 150
    assert 0.02 < np.mean(pixels[..., :3].min(axis=-1) < 0.9) < 0.5  # neither empty nor covered


def test_drawn_twice_is_equal_twice(written: Any, tmp_path: Path) -> None:
    loaded = written()
    once, twice = (figures.draw(loaded, tmp_path / name) for name in ("a", "b"))
    assert [p.read_bytes() for p in once] == [p.read_bytes() for p in twice]


def test_lines_are_medians_at_the_chosen_values_beside_the_published_ones(written: Any) -> None:
    loaded = written()
    plot = read_entry(loaded, loaded.study.figures[0])
    plain, dropped = plot.panels
    lines = {(line.label, line.metric): line for line in plain.lines}
    assert set(lines) == {(u, m) for u in ("gelu_tanh", "relu", "elu") for m in ("train/loss", "val/loss")}
    relu = lines["relu", "val/loss"]
    assert relu.ours.epochs.tolist() == [1, 2, 3, 4]
    assert relu.ours.band.median.tolist() == pytest.approx([1.905, 1.405, 0.905, 0.405])
    assert relu.ours.band.low[-1] == pytest.approx(0.4)
    assert relu.published is not None
    assert [v.tolist() for v in relu.published] == [[1, 3], [0.9, 0.5]]
    assert lines["relu", "train/loss"].published is None
    assert lines["elu", "val/loss"].published is None
    assert (plain.axis, plain.ylim, plain.scale) == ("log loss", (0, 1), 1)
    assert (dropped.axis, dropped.ylim, dropped.scale) == ("test error (%)", None, 100)
    assert {line.metric for line in dropped.lines} == {"test/error"}


def test_the_caption_says_how_many_and_which(written: Any) -> None:
    loaded = written(skip=lambda r: r.point["model.activation"] == "elu" and r.seed == 1)
    caption = read_entry(loaded, loaded.study.figures[0]).caption
    assert "median of 1 to 2 runs (seeds 0, 1)" in caption
    assert "Shaded: their range." in caption
    assert "chosen by val/loss" in caption
    assert "relu: lr 0.001" in caption
    assert "Dotted: published, a paper." in caption
    assert "Unfinished: 20 of 24 runs." in caption


def fixed(text: str) -> str:
    return text.replace("    label: log loss", "    label: log loss\n    fixed: {model.lr: 1.0e-4}", 1)


def test_fixed_values_are_drawn_whatever_is_chosen(written: Any) -> None:
    loaded = written(edit=fixed)
    plot = read_entry(loaded, loaded.study.figures[0])
    assert plot.panels[0].lines[1].ours.band.median[-1] == pytest.approx(0.305)
    assert "Drawn at lr 0.0001." in plot.caption
    assert "chosen" not in plot.caption


def test_added_units_are_further_lines(written: Any, tmp_path: Path) -> None:
    loaded = written(activations=["silu", "{name: elu, alpha: 0.5}"])
    plot = read_entry(loaded, loaded.study.figures[0])
    labels = list(dict.fromkeys(line.label for line in plot.panels[0].lines))
    assert labels == ["gelu_tanh", "relu", "elu", "silu", "elu(alpha=0.5)"]
    assert figures.draw(loaded, tmp_path / "f")


def test_tuned_keys_can_be_the_lines(written: Any) -> None:
    def by_lr(text: str) -> str:
        text = text.replace("lines: model.activation", "lines: model.lr")
        return text.replace("where: {model.dropout", "where: {model.activation: relu, model.dropout")

    loaded = written(edit=by_lr)
    lines = read_entry(loaded, loaded.study.figures[0]).panels[1].lines
    assert [(line.label, line.ours.band.median[-1]) for line in lines] == [
        ("0.001", pytest.approx(0.0405)),
        ("0.0001", pytest.approx(0.0505)),
    ]


def test_a_diverging_unit_leaves_a_gap(written: Any, tmp_path: Path) -> None:
    loaded = written(diverge=lambda r: r.point["model.activation"] == "elu")
    assert figures.draw(loaded, tmp_path / "f")
    assert "8 of the study's runs diverged" in read_entry(loaded, loaded.study.figures[0]).caption


def test_a_single_seed_and_many_panels_are_drawn(written: Any, tmp_path: Path) -> None:
    panel = "      - {title: plain, where: {model.dropout: 0.0}, published: A, ylim: [0, 1]}\n"
    loaded = written(edit=lambda text: text.replace(panel, 4 * panel), overrides=["seeds=1"])
    assert "Shaded" not in read_entry(loaded, loaded.study.figures[0]).caption
    assert figures.draw(loaded, tmp_path / "f")


def test_without_a_finished_run_there_is_no_figure(written: Any, tmp_path: Path) -> None:
    with pytest.raises(ActlabError, match="run the study first: actlab study run units"):
        figures.draw(written(skip=lambda run: True), tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("    label: log", "    labl: log", "unknown figure key 'labl'; did you mean 'label'"),
        ("{title: plain", "{titel: plain", "unknown panel key 'titel'; did you mean 'title'"),
        ("where: {model.dropout: 0.0}, pub", "where: {model.dropot: 0.0}, pub", "did you mean 'model.dropout'"),
        ("published: A", "published: B", "unknown panel of published curves 'B'"),
        ("names: {gelu", "nams: {gelu", "did you mean 'names'"),
        ("val/loss: heldout", "val/los: heldout", "did you mean 'val/loss'"),
        ("where: {model.dropout: 0.0}, pub", "pub", "give 'where' or 'fixed' a value of model.dropout"),
    ],
)
def test_mistakes_are_told(written: Any, tmp_path: Path, before: str, after: str, message: str) -> None:
    loaded = written(edit=lambda text: text.replace(before, after))
    with pytest.raises(ActlabError, match=message):
        figures.draw(loaded, tmp_path)


def test_a_units_colour_is_the_same_in_every_figure() -> None:
    one, two = style.colours(["gelu", "relu", "mine"]), style.colours(["relu", "other", "gelu"])
    assert (one["gelu"], one["relu"]) == (two["gelu"], two["relu"])
    many = style.colours([*style._KNOWN, *map(str, range(8))])
    assert len(set(many.values())) == len(many)
