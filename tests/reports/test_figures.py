"""Figures: what they show, that they can be drawn again, and what is refused."""

import csv
import io
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from actlab.analysis import results
from actlab.errors import ActlabError
from actlab.reports import figures, stored, style
from actlab.reports.pages.study import drawing
from actlab.reports.panels import Plot, limits, read_curves
from actlab.reports.plots import read_entry
from actlab.studies import probe_files
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder


def plot_of(loaded: Any, number: int = 0) -> Plot:
    """A figure of the study, which is not empty."""
    plot = read_entry(loaded, loaded.study.figures[number])
    assert plot
    return plot


def test_each_figure_is_drawn_as_svg_and_png_and_again_the_same(written, tmp_path):
    loaded = written()
    (svg, png), again = (
        style.save(figures.draw(loaded)["curves"], tmp_path / x / "curves") for x in "ab"
    )
    assert (svg.name, png.name) == ("curves.svg", "curves.png")
    assert "<dc:date>" not in svg.read_text()
    pixels = imread(png)
    assert pixels.shape[1] >= 6.6 * 150
    assert 0.02 < np.mean(pixels[..., :3].min(axis=-1) < 0.9) < 0.5  # neither empty nor covered
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in (svg, png)]


def laid_out(loaded: Any) -> Plot:
    """The first figure, which can be drawn."""
    plot = plot_of(loaded)
    with mpl.rc_context(style.RC):
        figures.figure_of(loaded, plot).draw_without_rendering()
    return plot


def test_lines_are_medians_at_the_chosen_values_beside_the_published_ones(written):
    loaded = written()
    plot = plot_of(loaded)
    plain, dropped = plot.panels
    lines = {(line.label, line.metric): line for line in plain.lines}
    assert set(lines) == {
        (u, m) for u in ("gelu_tanh", "relu", "elu") for m in ("train/loss", "val/loss")
    }
    relu = lines["relu", "val/loss"]
    assert relu.curve.x.tolist() == [1, 2, 3, 4]
    assert relu.curve.band.median.tolist() == pytest.approx([1.905, 1.405, 0.905, 0.405])
    assert relu.curve.band.low[-1] == pytest.approx(0.4)
    assert [v.tolist() for v in relu.published[:2]] == [[1, 3], [0.9, 0.5]]
    assert lines["relu", "train/loss"].published is None
    assert lines["elu", "val/loss"].published is None
    assert (plain.ylabel, plain.ylim, plain.scale) == ("log loss", (0, 1), 1)
    assert (dropped.ylabel, dropped.ylim, dropped.scale) == ("test error (%)", None, 100)
    assert {line.metric for line in dropped.lines} == {"test/error"}


def test_the_caption_says_how_many_and_which(written):
    loaded = written(skip=lambda r: r.point["model.activation"] == "elu" and r.seed == 1)
    caption = plot_of(loaded).caption
    assert "median of 1 to 2 runs (seeds 0, 1)" in caption
    assert "Shaded: their range." in caption
    assert "chosen by val/loss" in caption
    assert "relu: lr 0.001" in caption
    assert "Dotted: published, a paper." in caption
    assert "Unfinished: 20 of 24 runs." in caption


fixed = {"    label: log loss": "    label: log loss\n    fixed: {model.lr: 1.0e-4}"}


def test_fixed_values_are_drawn_whatever_is_chosen(written):
    loaded = written(edit=fixed)
    plot = plot_of(loaded)
    assert plot.panels[0].lines[1].curve.band.median[-1] == pytest.approx(0.305)
    assert "Drawn at lr 0.0001." in plot.caption
    assert "chosen" not in plot.caption


def test_a_unit_that_was_not_run_at_fixed_values_is_named(written):
    """As in a later stage, where another rate was chosen for it."""
    loaded = written(edit=fixed)
    (block,) = loaded.study.blocks
    grids: list[dict[str, Any]] = [
        {"model.activation": ["gelu_tanh", "relu"]},
        {"model.activation": ["elu"], "model.lr": [1e-3]},
    ]
    blocks = tuple(replace(block, grid={**block.grid, **grid}) for grid in grids)
    loaded = results.load(StudyFolder(replace(loaded.study, blocks=blocks), loaded.root))
    plot = plot_of(loaded)
    assert {line.label for panel in plot.panels for line in panel.lines} == {"gelu_tanh", "relu"}
    assert "Drawn at lr 0.0001. Without a run there, so not drawn: elu." in plot.caption


def test_published_epochs_of_another_length_and_what_readers_must_know(written):
    names = {"names: {gelu_tanh: GELU, relu: ReLU}": "names: {relu: ReLU}, stretch: 1.5"}
    words = {"    label: log loss": "    label: log loss\n    caption: Mind the gap."}
    plot = plot_of(written(edit=names | words))
    (published,) = (line.published for line in plot.panels[0].lines if line.published)
    assert published[0].tolist() == [1.5, 4.5]
    assert plot.caption.endswith("Mind the gap.")


def test_long_words_stay_beside_their_panel(written):
    words = "share of the hidden units that never answer to any image of the validation set"
    loaded = written(
        edit=lambda text: text.replace("    label: log loss", f"    label: {words}", 1)
    )
    with mpl.rc_context(style.RC):
        drawn = figures.figure_of(loaded, plot_of(loaded))
        drawn.draw_without_rendering()
    renderer = FigureCanvasAgg(drawn).get_renderer()
    for axes in drawn.axes[:2]:
        height = axes.get_window_extent(renderer).height
        assert axes.yaxis.label.get_window_extent(renderer).height <= 1.15 * height


def test_a_logarithmic_axis_shows_all_that_is_above_0(written, tmp_path):
    edit = {"    label: log loss": "    label: log loss\n    log: true"}
    with pytest.raises(ActlabError, match=r"limits above 0 on a logarithmic axis, got \[0, 1\]"):
        figures.draw(written(edit=edit))
    loaded = written(edit=edit | {", ylim: [0, 1]": ""})
    plot = plot_of(loaded)
    low, high = limits(plot.panels[0])
    published = [
        value for line in plot.panels[0].lines if line.published for value in line.published.values
    ]
    assert low <= min(published) < max(published) <= high
    axes = figures.figure_of(loaded, plot).axes[:2]
    assert [ax.get_yscale() for ax in axes] == ["log", "log"]
    values = np.concatenate([v for line in plot.panels[1].lines for v in line.curve.band[:3]])
    assert axes[1].get_ylim() == pytest.approx((100 * values.min() / 1.5, 100 * values.max() * 1.5))
    line = plot.panels[1].lines[0]
    line.curve.band.median[0] = 0.0
    lowest = figures.figure_of(loaded, plot).axes[1].get_lines()[0].get_ydata()
    assert np.isnan(lowest[0])  # a gap, not a line down to the axis
    assert np.isfinite(lowest[1:]).all()


def test_added_units_are_further_lines_without_a_published_curve(written):
    loaded = written(activations=["silu", {"name": "elu", "alpha": 0.5}, "./mine.py:relu"])
    lines = [x for x in laid_out(loaded).panels[0].lines if x.metric == "val/loss"]
    assert [(x.label, x.published is not None) for x in lines] == [
        ("gelu_tanh", False),
        ("relu", True),
        ("elu", False),
        ("silu", False),
        ("elu(alpha=0.5)", False),
        (f"{Path.cwd()}/mine.py:relu", False),
    ]


A_UNIT_A_PANEL = {
    "where: {model.dropout: 0.0}": "where: {model.activation: relu}",
    "where: {model.dropout: 0.5}": "where: {model.activation: elu}",
}


OF_RELU = {"where: {model.dropout": "where: {model.activation: relu, model.dropout"}
TUNED = {
    "lines: model.activation": "lines: model.dropout",
    "[model.lr]": "[model.lr, model.dropout]",
}
COMPARED = {"    lines: model.activation\n": "", "seeds: 2": "seeds: 2\ncompare: model.dropout"}


@pytest.mark.parametrize(
    ("edit", "medians"),
    [
        (
            OF_RELU | {"lines: model.activation": "lines: model.lr"},
            {"0.001": 0.0405, "0.0001": 0.0505},
        ),
        (A_UNIT_A_PANEL | TUNED, {"0": 0.0305, "0.5": 0.0305}),
        (A_UNIT_A_PANEL | COMPARED, {"0": 0.0305, "0.5": 0.0305}),
    ],
    ids=["a tuned key", "one of two tuned keys", "what is compared"],
)
def test_other_grid_keys_can_be_the_lines(written, edit, medians):
    plot = plot_of(written(edit=edit))
    assert {
        line.label: line.curve.band.median[-1] for line in plot.panels[1].lines
    } == pytest.approx(medians)
    assert ("chosen by val/loss: 0: lr 0.001; 0.5: lr 0.001." in plot.caption) == ("0" in medians)


def test_a_diverging_unit_leaves_a_gap(written):
    loaded = written(diverge=lambda r: r.point["model.activation"] == "elu")
    assert "8 of the study's runs diverged" in laid_out(loaded).caption


def test_a_single_seed_and_many_panels_are_drawn(written):
    panel = "      - {title: plain, where: {model.dropout: 0.0}, published: A, ylim: [0, 1]}\n"
    more = "".join(panel.replace("plain", f"plain {number}") for number in range(4))
    loaded = written(edit={panel: more}, overrides=["seeds=1"])
    assert "Shaded" not in laid_out(loaded).caption


def test_a_caption_names_the_panels_that_chose_differently(written):
    loaded = written(skip=lambda r: r.point["model.dropout"] == 0.5 and r.point["model.lr"] == 1e-3)
    caption = plot_of(loaded).caption
    assert "relu: lr 0.001 (plain) and lr 0.0001 (dropped)" in caption


NOISE_FIGURE = """
  - name: noise
    x: noise
    xlabel: strength
    y: {noise/test/error: heldout, noise/train/error: train}
    percent: true
    panels:
      - {title: plain, where: {model.dropout: 0.0}, published: A}
      - title: layers
        where: {model.dropout: 0.0}
        x: layer
        condition: noise=1
        y: {noise/test/dead: null}
    published: {file: PUBLISHED, names: {gelu_tanh: GELU, relu: ReLU}}
notes:"""


def noisy(written: Any, *changes: tuple[str, str]) -> Any:
    """The study with a figure over conditions; the probe gives noise/10 + seed/100, or twice it."""

    def edit(text: str) -> str:
        figure = NOISE_FIGURE.replace("PUBLISHED", text.partition("file: ")[2].partition(",")[0])
        for before, after in changes:
            figure = figure.replace(before, after)
        return text.replace("\nnotes:", figure)

    loaded = written(edit=edit)
    for run in loaded.runs:
        factor = 1 if run.point["model.activation"] == "relu" else 2
        rows = []
        for epoch, noise in product((2, 4), range(3)):
            value, where = factor * (noise / 10 + run.seed / 100) + (epoch < 4), f"noise={noise}"
            dead = ("test", "dead", f"noise=1,layer={noise + 1}")
            for named in (("test", "error", where), ("train", "error", where), dead):
                rows.append(Row(float(epoch), epoch, *named, value))
        probe_files.write(probe_files.file_of(loaded.root / run.id, "noise", []), rows)
    return results.load(StudyFolder(loaded.study, loaded.root))


@pytest.mark.usefixtures("undrawn")
def test_conditions_can_be_the_x_axis(written, tmp_path):
    loaded = noisy(written)
    plot = plot_of(loaded, 1)
    plain, layers = plot.panels
    lines = {(line.label, line.metric): line for line in plain.lines}
    relu = lines["relu", "noise/test/error"]
    assert relu.curve.x.tolist() == [0, 1, 2]
    assert relu.curve.band.median.tolist() == pytest.approx([0.005, 0.105, 0.205])
    assert relu.curve.band.high.tolist() == pytest.approx([0.01, 0.11, 0.21])
    assert [v.tolist() for v in relu.published[:2]] == [[1, 3], [0.9, 0.5]]
    kinds = [lines["relu", m].kind for m in ("noise/test/error", "noise/train/error")]
    assert kinds == ["held out", "training"]
    assert (plain.xlabel, plain.ylabel, plain.over_epochs) == (
        "strength",
        "noise test error (%)",
        False,
    )
    assert [line.curve.x.tolist() for line in layers.lines] == [[1, 2, 3]] * 3
    assert (
        "Values: at the last epoch (plain); at the last epoch, under noise=1 (layers)."
        in plot.caption
    )
    assert [*figures.draw(loaded)] == ["curves", "noise"]
    (ax, _) = figures.figure_of(loaded, plot).axes
    assert ax.get_xlim() == pytest.approx((-0.04, 2.04))  # 2 % of the range on each side
    assert ax.get_ylim()[1] == pytest.approx(1.08 * 100 * 2 * 0.21)
    assert ax.get_xlabel() == "strength"


def test_runs_are_read_where_the_figure_says(written):
    loaded = noisy(written, ("xlabel: strength", "at: 2"))
    plot = plot_of(loaded, 1)
    relu = next(line for line in plot.panels[0].lines if line.label == "relu")
    assert relu.curve.band.median.tolist() == pytest.approx([1.005, 1.105, 1.205])
    assert plot.panels[0].xlabel == "noise"
    assert "Values: at epoch 2 (plain)" in plot.caption


def test_values_at_selection_are_those_at_the_end_where_last_values_select(written):
    for rule, place in (
        ("best", "at the epoch of the best val/loss"),
        ("last", "at the last epoch"),
    ):
        loaded = noisy(written, ("xlabel: strength", "at: selected"))
        select = replace(loaded.study.select, at=rule)
        plot = plot_of(
            replace(loaded, folder=loaded.folder.with_study(replace(loaded.study, select=select))),
            1,
        )
        assert f"Values: {place} (plain)" in plot.caption


def test_one_condition_can_be_drawn_over_the_epochs(written, tmp_path):
    loaded = noisy(
        written,
        ("    x: noise\n", "    condition: noise=2\n"),
        ("x: layer\n        condition: noise=1", "condition: noise=1,layer=2"),
    )
    plot = plot_of(loaded, 1)
    relu = next(line for line in plot.panels[0].lines if line.label == "relu")
    assert relu.curve.x.tolist() == [2, 4]
    assert relu.curve.band.median.tolist() == pytest.approx([1.205, 0.205])
    assert "Values: under noise=2 (plain); under noise=1,layer=2 (layers)." in plot.caption


def test_a_single_condition_is_drawn_with_its_interval(written, tmp_path):
    loaded = noisy(written, ("x: layer\n        condition: noise=1", "condition: layer=3"))
    plot = plot_of(loaded, 1)
    assert [line.curve.x.tolist() for line in plot.panels[1].lines] == [[1]] * 3
    ax = figures.figure_of(loaded, plot).axes[1]
    assert ax.get_xticks().tolist() == [1]
    assert len(ax.collections) == 3


def test_mistakes_in_an_axis_of_conditions_get_clear_errors(written):
    for before, after, message in (
        ("x: noise\n", "x: nois\n", "unknown key of conditions 'nois'; did you mean 'noise'"),
        (
            "on: noise=1",
            "on: noise=3",
            "unknown condition next to layer 'noise=3'; did you mean 'noise=1'",
        ),
        (
            "    x: noise\n",
            "",
            "unknown condition of noise/test/error ''.*noise=0.*Name one as 'condition'",
        ),
        ("xlabel: strength", "at: lst", "figures.*at.*, got 'lst'"),
        ("noise/test/error: h", "noise/test/eror: h", "did you mean 'noise/test/error'"),
    ):
        with pytest.raises(ActlabError, match=message):
            read_entry(loaded := noisy(written, (before, after)), loaded.study.figures[1])


def test_a_figure_of_no_finished_run_or_of_a_probe_that_was_not_made_yet_says_so(written):
    message = "recorded what it shows. Run the study first: actlab study run units"
    loaded = written(edit={"{train/loss: train, val/loss: heldout}": "{noise/test/error: null}"})
    with pytest.raises(ActlabError, match=message):
        read_entry(
            loaded, {**loaded.study.figures[0], "panels": [{"where": {"model.dropout": 0.0}}]}
        )
    shutil.rmtree(loaded.root)
    with pytest.raises(ActlabError, match=message):
        figures.draw(written(skip=lambda run: True))


def test_mistakes_in_a_figure_get_clear_errors(written, tmp_path):
    for before, after, message in (
        (
            "    label: log",
            "    labl: log",
            "unknown key of 'figures' 'labl'; did you mean 'label'",
        ),
        ("{title: plain", "{titel: plain", "unknown key of 'panels' 'titel'; did you mean 'title'"),
        (
            "where: {model.dropout: 0.0}, pub",
            "where: {model.dropot: 0.0}, pub",
            "did you mean 'model.dropout'",
        ),
        ("published: A", "published: B", "unknown panel of published curves 'B'"),
        ("names: {gelu", "nams: {gelu", "did you mean 'names'"),
        ("val/loss: heldout", "val/los: heldout", "did you mean 'val/loss'"),
        (
            "val/loss: heldout",
            "val/loss: heldot",
            "unknown published curve 'heldot'; did you mean 'heldout'",
        ),
        ("relu: ReLU", "relu: RELU", "unknown name in published curves 'RELU'"),
        (
            "    label: log",
            "    at: best\n    label: log",
            "'at' is allowed only with an 'x' of conditions",
        ),
        ("    label: log", "    x: noise\n    label: log", "unknown key of conditions 'noise'"),
        (
            "    label: log",
            "    condition: noise=1\n    label: log",
            "unknown condition of train/loss 'noise=1'",
        ),
        (
            "where: {model.dropout: 0.0}, pub",
            "pub",
            "Set a value of model.dropout in 'where' or 'fixed'",
        ),
    ):
        with pytest.raises(ActlabError, match=message):
            figures.draw(written(edit={before: after}))


def test_published_curves_that_cannot_be_drawn_get_clear_errors(tmp_path):
    with pytest.raises(
        ActlabError, match=r"expected a CSV file .*, got 'mine\.csv', which does not exist"
    ):
        read_curves({"file": "mine.csv"}, "f")
    head, unread = b"panel,act,curve,epoch,value\n", r"some\.csv"
    for content, message in (
        (
            b"panel,act,epoch\nA,ReLU,1\n",
            r"expected a CSV file with the columns .* got .*some\.csv without curve, value",
        ),
        (b"", rf"{unread} \(No columns"),
        (b"\xff\xfe\x00", rf"{unread} \('utf-8' codec"),
        (head + b"1,ReLU,c,1,.5\n1,ReLU,c,2,n/a\n", rf"{unread} \(could not convert"),
        (head + b"1,ReLU,c,,.5\n", rf"{unread} \(could not convert"),
        (head + b"1,ReLU,c,inf,.5\n", r"some\.csv has numbers that are not finite"),
    ):
        (tmp_path / "some.csv").write_bytes(content)
        with pytest.raises(ActlabError, match=message):
            read_curves({"file": str(tmp_path / "some.csv")}, "f")


def test_panels_and_curves_may_be_called_by_numbers_or_na(tmp_path):
    (tmp_path / "some.csv").write_text("panel,act,curve,epoch,value\n1,NA,2,3,.5\n")
    found = read_curves({"file": str(tmp_path / "some.csv"), "names": {"relu": "NA"}}, "f")
    found.check("1", "2")
    curve = found.get("1", "relu", "2")
    assert (list(curve.x), list(curve.values), curve.name) == ([3.0], [0.5], ("1", "NA", "2"))


def test_a_label_that_begins_with_an_underscore_stands_in_the_legend(written, tmp_path):
    (tmp_path / "mine.py").write_text("def _mine(x):\n    return x\n")
    loaded = written(activations=[f"{tmp_path}/mine.py:_mine"])
    with mpl.rc_context(style.RC):
        (legend, *_) = figures.figure_of(loaded, plot_of(loaded)).legends
    assert "_mine" in [text.get_text().strip() for text in legend.get_texts()]


def test_a_units_colour_is_the_same_in_every_figure():
    one, two = style.colours(["gelu", "relu", "mine"]), style.colours(["relu", "other", "gelu"])
    assert (one["gelu"], one["relu"]) == (two["gelu"], two["relu"])
    for units in ([*style._FIXED, *map(str, range(8))], [f"unit {n}" for n in range(24)]):
        assert len(set(style.colours(units).values())) == len(units)


def test_curves_csv_holds_every_place_of_every_line(written, tmp_path):
    loaded = written(diverge=lambda r: r.point["model.activation"] == "elu" and r.seed == 1)
    file = stored.write(loaded, tmp_path / "out")
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert (file.name, tuple(rows[0])) == ("curves.csv", stored.COLUMNS)
    plot = plot_of(loaded)
    drawn = [len(line.curve.x) for panel in plot.panels for line in panel.lines]
    assert len(rows) == sum(drawn)
    lines = {(r["panel"], r["line"], r["metric"], r["x"]): r for r in rows}
    relu = lines["plain", "relu", "val/loss", "3.0"]
    assert [float(relu[key]) for key in ("median", "low", "high")] == pytest.approx(
        [0.905, 0.9, 0.91]
    )
    assert (relu["figure"], relu["n"]) == ("curves", "2")
    assert [relu[f"published_{key}"] for key in ("panel", "act", "curve")] == [
        "A",
        "ReLU",
        "heldout",
    ]
    assert lines["plain", "elu", "val/loss", "3.0"]["published_act"] == ""
    # A fraction, as it was recorded, though the panel is drawn in percent.
    assert float(lines["dropped", "relu", "test/error", "4.0"]["median"]) == pytest.approx(0.0405)


def test_a_line_that_ends_early_is_named_and_a_single_value_is_a_dot(written):
    loaded = written(edit={", ylim: [0, 1]": ""})
    for run in (
        run for run in loaded.runs if (run.seed, run.point["model.activation"]) == (1, "elu")
    ):
        folder = RunFolder(loaded.root, run)
        shutil.rmtree(folder.path)
        folder.open()
        named = (("train", "loss"), ("val", "loss"), ("test", "error"))
        folder.finish("finished", [Row(1.0, 1, s, m, "", 0.3) for s, m in named], seconds=1.0)
    loaded = results.load(StudyFolder(loaded.study, loaded.root))
    plot = plot_of(loaded)
    assert "A line ends where the first of its runs has ended: elu." in plot.caption
    elu = next(line for line in plot.panels[0].lines if line.label == "elu")
    assert len(elu.curve.x) == 1
    drawn = figures.figure_of(loaded, plot).axes[0]
    dotted = [line for line in drawn.get_lines() if line.get_marker() == "o"]
    assert [len(np.asarray(line.get_xdata())) for line in dotted] == [1] * len(dotted) != []
    relu = next(line for line in plot.panels[0].lines if line.label == "relu" and line.published)
    shown = [y for x, y in zip(*relu.published[:2], strict=True) if 0.4 <= x <= 4]
    assert limits(plot.panels[0])[1] >= max(shown)  # what the caption calls dotted can be seen


def test_two_metrics_of_one_panel_are_told_apart_by_style_and_legend(written, tmp_path):
    """Also beside the training's metric, whose line is dashed."""
    loaded = written(edit={"val/loss: heldout}": "val/loss: heldout, test/error: null}"})
    plot = plot_of(loaded)
    assert plot.kinds == ["training", "published", "val/loss", "test/error"]
    with mpl.rc_context(style.RC):
        figure = figures.figure_of(loaded, plot)
        ax = figure.axes[0]
        legend = [
            text.get_text().strip() for legend in figure.legends for text in legend.get_texts()
        ]
    assert legend[-4:] == plot.kinds
    drawn = {str(vars(line)["_dash_pattern"]) for line in ax.lines}
    assert len(drawn) == 4
    dashes = {line["kind"]: line["dash"] for line in drawing(plot)["panels"][0]["lines"]}
    assert dashes.keys() == {"training", "val/loss", "test/error"}
    assert dashes["val/loss"] != dashes["test/error"]
