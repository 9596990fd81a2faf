"""Studies of activations with learnt parameters: plan, table, curves and the figure, also of an archive."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from actlab.analysis import comparison, results
from actlab.errors import ActlabError
from actlab.reports import notes, plots
from actlab.reports.plots import read
from actlab.studies import reading
from actlab.studies.folders import DIVERGED, FINISHED, Row, StudyFolder
from actlab.studies.plan import Selection
from tiny_study import trained_once
from written_runs import ACT, study, write

STUDY = """\
title: Two activations
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 200
  trainer.max_epochs: 2
  trainer.limit_train_batches: 4
  trainer.limit_val_batches: 1
  model.network.hidden: [8, 6, 4]
grid: {model.activation: [relu, ./learnt_parameters.py:Swish]}
seeds: 2
table:
  - {metric: val/error}
  - {metric: activation/beta, condition: layer=2, ranked: false}
figures:
  - {name: depth, x: layer, y: {activation/beta: null}}
  - {name: course, condition: layer=1, y: {activation/beta: null}}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a finished study."""
    folder = tmp_path_factory.mktemp("learnt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(Path(__file__).parents[1] / "programs/learnt_parameters.py", folder)
        trained_once(folder, STUDY, "study")
    return folder


@pytest.fixture
def copied(trained, tmp_path, monkeypatch):
    """A copy of the finished study, which is the current folder."""
    folder = shutil.copytree(trained, tmp_path / "copied")
    monkeypatch.chdir(folder)
    return folder


def test_table_and_curves_show_them(copied):
    loaded = results.load(StudyFolder(reading.load("study.yaml"), copied / "runs/study"))
    relu, swish = (row.cells[1] for row in comparison.rows(loaded))
    assert (relu.values, relu.column.ranked, relu.p, len(swish.values)) == ({}, False, None, 2)
    assert not any("Not measured" in note for note in notes.remarks(loaded))
    depth, course, learnt = read(loaded)
    assert [(line.label, line.ours.x.tolist()) for line in depth.lines] == [("Swish", [1, 2, 3])]
    assert [(line.label, line.ours.x.tolist()) for line in course.lines] == [("Swish", [1, 2])]
    assert [line.ours.x[0] for line in learnt.lines] == [-4] * 4


def test_all_layers_stand_in_files_and_the_table(copied, cli):
    """Layer 2 has a column of its own, as the study's table says; the others are in one."""
    out = cli("study", "show", "study.yaml").out
    assert cli("study", "report", "study.yaml", "--html").code == 0
    values = pd.read_csv(copied / "runs/study/values.csv").set_index("model.activation")
    names = [f"activation/beta[layer={layer}]@last" for layer in (2, 1, 3)]
    assert [name for name in values if str(name).startswith("activation/")] == names
    swish = values.loc[values.index[-1]]
    rows = json.loads((copied / "runs/study/table.json").read_text())["rows"]
    for name in names:
        (found,) = (c for c in rows[1]["columns"] if f"{c['metric']}[{c['condition']}]@last" == name)
        assert found["median"] == pytest.approx(swish[name].median())
    medians = ", ".join(f"{swish[name].median():#.3g}" for name in names[1:])
    assert "activation beta" in out
    assert "by layer (last)" in out
    assert any(medians in line for line in out.splitlines() if "Swish" in line)
    assert medians in (copied / "runs/study/report.html").read_text()


def test_the_figure_needs_neither_checkpoints_nor_the_code_that_ran(copied, cli):
    for checkpoints in copied.glob("runs/study/*/checkpoints"):
        shutil.rmtree(checkpoints)
    assert cli("study", "report", "study.yaml", "--paper", "1").code == 0
    folder = copied / "runs/study"
    for kind in ("png", "pdf"):
        assert (folder / "figures" / f"{plots.LEARNT_FIGURE}.{kind}").exists()
    rows = pd.read_csv(folder / "curves.csv").query("figure == @plots.LEARNT_FIGURE")
    lines = rows.groupby(["line", "metric", "panel"], sort=False)["n"].unique().map(list).to_dict()
    layers = {(f"layer {n}", "learnt_activation", "Swish"): [2] for n in (1, 2, 3)}
    assert lines == {**layers, ("all layers", "initial_activation", "Swish"): [2]}


def test_a_study_without_learnt_parameters_has_no_such_figure(copied):
    text = STUDY.replace("[relu, ./learnt_parameters.py:Swish]", "[relu]").partition("figures:")[0]
    column = "  - {metric: activation/beta, condition: layer=2, ranked: false}\n"
    (copied / "study.yaml").write_text(text.replace(column, ""))
    loaded = results.load(StudyFolder(reading.load("study.yaml"), copied / "runs/study"))
    assert loaded.finished == 2
    assert read(loaded) == []


@pytest.mark.parametrize(
    ("unit", "column", "message"),
    [
        ("prelu", "activation/slope, condition: layer=1", "unknown metric 'activation/slope'"),
        ("prelu", "activation/weight", "recorded of each layer: give a 'condition', such as layer=1"),
        (
            "prelu",
            "activation/weight, condition: layer=1, ranked: true",
            "is neither good nor bad",
        ),
        ("prelu", "activation/weight, condition: layer=1", None),
        ("./learnt_parameters.py:Swish", "activation/beta, condition: layer=1", None),
        ("relu", "activation/beta, condition: layer=1", "unknown metric 'activation/beta'"),
    ],
)
def test_a_plan_checks_them(cli, program, tmp_path, monkeypatch, unit, column, message):
    program("learnt_parameters")
    monkeypatch.chdir(tmp_path)
    text = STUDY.replace("[relu, ./learnt_parameters.py:Swish]", f"[{unit}]").partition("figures:")[0]
    text = text.replace("activation/beta, condition: layer=2, ranked: false", column)
    (tmp_path / "study.yaml").write_text(text)
    outcome = cli("study", "plan", "study.yaml")
    assert (outcome.code, message is None or message in outcome.err) == (2 if message else 0, True), outcome.err


def test_a_diverged_run_has_no_parameters_at_its_end(tmp_path):
    beta = {"metric": "activation/beta", "condition": "layer=1"}
    figure = {"y": {beta["metric"]: None}, "condition": "layer=1"}
    plan = study(grids=({ACT: ["mine"]},), select=Selection(), table=(beta,), figures=(figure,))
    for run in plan.runs():
        rows = [Row(float(e), e, "activation", "beta", "layer=1", 0.1 * e) for e in (1, 2, 3)[: 3 - run.seed]]
        write(tmp_path, run, {"val/loss": [1.0]}, DIVERGED if run.seed else FINISHED, rows)
    loaded = results.load(StudyFolder(plan, tmp_path))
    (row,) = comparison.rows(loaded)
    assert row.cells[0].values == {0: pytest.approx(0.3)}
    (line,) = read(loaded)[0].lines
    assert line.ours.band.median.tolist() == pytest.approx([0.1, 0.2])


def test_runs_that_are_missing_may_record_them(tmp_path):
    beta = {"metric": "activation/beta", "condition": "layer=1"}
    plan = study(grids=({ACT: ["relu", "mine"]},), select=Selection(), table=({"metric": "test/error"}, beta))
    first, *_, last = plan.runs()
    write(tmp_path, first, {"test/error": [0.1]})
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert [cell.median for cell in comparison.rows(loaded)[0].cells] == [0.1, None]
    write(tmp_path, last, {"test/error": [0.1]}, rows=[Row(1.0, 1, "activation", "beta", "layer=1", 0.5)])
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert [cell.median for cell in comparison.rows(loaded)[1].cells] == [0.1, 0.5]
    with pytest.raises(ActlabError, match="condition of activation/beta"):
        loaded.check("activation/beta", "layer=7")
