"""Figures drawn from ``results/``: whose they are, and what was not run."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from actlab.reports import stored


def titles_of(written: Any, tmp_path: Path, **options: Any) -> list[tuple[str, str]]:
    """Title and y label of each panel, drawn from what a study keeps."""
    loaded = written(**options)
    stored.write(loaded, tmp_path / "results" / "units")
    drawn = stored.draw(str(tmp_path / "units.yaml"), results=tmp_path / "results")
    return [(axes.get_title(loc="left"), axes.get_ylabel()) for axes in drawn.axes]


def legend_of(drawn: Any) -> list[str]:
    return [text.get_text() for legend in drawn.legends for text in legend.get_texts()]


def test_published_curves_are_dotted_also_without_a_line_of_ours(tmp_path):
    drawn = stored.draw("gelu_cifar10", results=tmp_path)
    assert legend_of(drawn)[-1] == "published"
    lines = [
        line
        for axes in drawn.axes
        for line in axes.get_lines()
        if np.isfinite(line.get_ydata()).any()
    ]
    assert lines
    assert all(line.is_dashed() for line in lines)


def test_a_panel_says_what_was_run(written, tmp_path):
    """Also where activations have different numbers of runs, and where one panel has none."""
    assert titles_of(written, tmp_path) == [
        ("plain (n = 2)", "log loss"),
        ("dropped (n = 2)", "test error (%)"),
    ]
    shutil.rmtree(tmp_path / "runs")
    titles = titles_of(
        written, tmp_path, skip=lambda run: run.seed and run.point["model.activation"] == "relu"
    )
    assert titles[0][0] == "plain (n = 1–2)"
    shutil.rmtree(tmp_path / "runs")
    plain, dropped = titles_of(written, tmp_path, skip=lambda run: not run.point["model.dropout"])
    assert plain == ("plain (published; not run here)", "log loss")
    assert dropped[0] == "dropped (n = 2)"


def test_panels_without_titles_are_distinguished_by_their_numbers(written, tmp_path):
    bare = {"title: plain, ": "", "title: dropped, ": "", "label: test error,\n": "\n"}
    found = titles_of(written, tmp_path, edit=bare, skip=lambda run: not run.point["model.dropout"])
    assert found == [("1 (published; not run here)", "log loss"), ("2 (n = 2)", "log loss (%)")]


def test_a_line_that_is_called_none_is_drawn(written, tmp_path):
    def by_dropout(text: str) -> str:
        text = text.replace("model.dropout: [0.0, 0.5]", "model.dropout: [null, 0.5]")
        panel = "{title: one, where: {model.activation: relu}}"
        return (
            text.replace("lines: model.activation", "lines: model.dropout")
            .replace(
                text[text.index("      - {title: plain") : text.index("    published: {file")],
                f"      - {panel}\n",
            )
            .replace("names: {gelu_tanh: GELU, relu: ReLU}", "names: {}")
        )

    loaded = written(edit=by_dropout)
    stored.write(loaded, tmp_path / "results" / "units")
    drawn = stored.draw(str(tmp_path / "units.yaml"), results=tmp_path / "results")
    assert legend_of(drawn)[:2] == ["None", "0.5"]


def test_a_study_without_runs_and_published_curves_says_so(tmp_path):
    drawn = stored.draw("elu_imagenet", results=tmp_path)
    assert legend_of(drawn) == ["not run here, no published curve"]


def test_a_value_from_before_training_is_a_dot_and_places_without_a_panel_are_empty():
    drawn = stored.draw("elu_mnist_autoencoder", results=Path(__file__).parents[2] / "results")
    assert [axes.get_visible() for axes in drawn.axes] == [True] * 4 + [False] * 2
    for axes in drawn.axes[:4]:
        dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
        assert [tuple(np.asarray(line.get_xdata())) for line in dots] == [(0.0,)] * 4
