"""Studies of activations with parameters: plan, lines below the verdict, curves, the figure."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.errors import ActlabError
from actlab.reports import plots
from actlab.reports.plots import read
from actlab.studies import reading
from actlab.studies.plan import Selection
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.studies.study_folder import StudyFolder
from tiny_study import trained_once
from written_runs import ACT, study, write

GRID = "[relu, ./learnt_parameters.py:Swish, ./learnt_parameters.py:ChannelSwish]"
STUDY = f"""\
title: Three activations
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 200
  trainer.max_epochs: 2
  trainer.limit_train_batches: 4
  trainer.limit_val_batches: 1
  model.network.hidden: [8, 6, 4]
  model.optimizer.lr: 0.05
grid: {{model.activation: {GRID}}}
seeds: 2
table:
  - {{metric: val/error}}
  - {{metric: activation/beta, condition: layer=2, ranked: false}}
  - {{metric: test/error}}
figures:
  - {{name: depth, x: layer, y: {{activation/beta: null}}}}
  - {{name: course, condition: layer=1, y: {{activation/beta: null}}}}
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
    relu, *learning = (row.columns[1] for row in table_of(loaded).rows)
    assert (relu.values, relu.ranked, relu.p) == ({}, False, None)
    assert [len(cell.values) for cell in learning] == [2, 2]
    assert not any("Not measured" in note for note in table_of(loaded).remarks)
    depth, course, learnt = read(loaded)
    names = ["Swish", "ChannelSwish"]
    assert [(line.label, line.curve.x.tolist()) for line in depth.lines] == [
        (n, [1, 2, 3]) for n in names
    ]
    assert [(line.label, line.curve.x.tolist()) for line in course.lines] == [
        (n, [1, 2]) for n in names
    ]
    assert [line.curve.x[0] for line in learnt.lines] == [-4] * 6


def of_layers(values, activation, end=""):
    """Medians over seeds of each layer's last β, in the order of the network."""
    rows = values[values["model.activation"] == activation]
    return [rows[f"activation/beta{end}[layer={layer}]@last"].median() for layer in (1, 2, 3)]


def test_a_parameter_is_one_line_below_the_verdict(copied, cli, succeed):
    """Files for programs have every layer; the terminal and both pages have one line."""
    out = cli("study", "show", "study.yaml").out
    succeed("study", "report", "study.yaml", "--html")
    folder = copied / "runs/study"
    values = pd.read_csv(folder / "values.csv")
    shared, channels = of_layers(values, "Swish"), of_layers(values, "ChannelSwish")
    low, high = of_layers(values, "ChannelSwish", "_min"), of_layers(values, "ChannelSwish", "_max")
    lines = [
        f"Swish, beta: {min(shared):#.3g} to {max(shared):#.3g} by layer, started at 1",
        f"ChannelSwish, beta: means of {min(channels):#.3g} to {max(channels):#.3g} by layer, "
        f"single values of {min(low):#.3g} to {max(high):#.3g}, started at 1.5",
    ]
    for text in (out, (folder / "table.md").read_text(), (folder / "report.html").read_text()):
        places = [text.index(line) for line in lines]
        assert [text.count(line) for line in lines] == [1, 1]
        assert text.index("Verdict") < places[0] < places[1]
        assert "by layer (last)" not in text  # no column


def test_files_for_programs_have_all_layers(copied, succeed):
    succeed("study", "report", "study.yaml")
    values = pd.read_csv(copied / "runs/study/values.csv")
    rows = json.loads((copied / "runs/study/table.json").read_text())["rows"]
    for end in ("", "_min", "_max"):
        medians = of_layers(values, "ChannelSwish", end)
        cells = {(c["metric"], c["condition"]): c["median"] for c in rows[2]["columns"]}
        found = [cells[f"activation/beta{end}", f"layer={layer}"] for layer in (1, 2, 3)]
        assert found == pytest.approx(medians)


def test_the_figure_shows_what_training_changed_and_the_spread_over_channels(copied):
    """f(x) − f₀(x) by hand, from β in each run's checkpoint: mean, lowest and highest channel."""
    loaded = results.load(StudyFolder(reading.load("study.yaml"), copied / "runs/study"))
    plot = read(loaded)[-1]
    assert (plot.name, plot.kinds) == (plots.LEARNT_FIGURE, ["learnt"])
    swish, channel_swish = plot.panels
    assert (swish.ylabel, channel_swish.ylabel) == ("f(x) − f₀(x)",) * 2
    for panel, start, runs in (
        (swish, 1.0, loaded.runs[2:4]),
        (channel_swish, 1.5, loaded.runs[4:6]),
    ):
        for layer, line in enumerate(panel.lines, 1):
            x = torch.as_tensor(line.curve.x)
            changes = []
            for run in runs:
                state = torch.load(RunFolder(loaded.root, run).checkpoint, weights_only=True)[
                    "state_dict"
                ]
                beta = [value for name, value in state.items() if name.endswith(".beta")][layer - 1]
                by_channel = x * torch.sigmoid(beta.double().view(-1, 1) * x) - x * torch.sigmoid(
                    start * x
                )
                changes.append(
                    torch.stack([by_channel.mean(0), by_channel.amin(0), by_channel.amax(0)])
                )
            mean, low, high = torch.stack(changes).mean(0)  # of two runs, the median
            assert line.curve.band.median == pytest.approx(mean.numpy(), abs=1e-5)
            if panel is channel_swish:
                assert line.curve.over_channels
                assert line.curve.band.low == pytest.approx(low.numpy(), abs=1e-5)
                assert line.curve.band.high == pytest.approx(high.numpy(), abs=1e-5)
                assert (line.curve.band.high - line.curve.band.low).max() > 1e-4
    assert "lowest to the highest channel" in plot.caption


def test_the_figure_needs_neither_checkpoints_nor_the_code_that_ran(copied, succeed):
    for checkpoints in copied.glob("runs/study/*/checkpoints"):
        shutil.rmtree(checkpoints)
    succeed("study", "report", "study.yaml", "--paper", "1")
    folder = copied / "runs/study"
    for kind in ("png", "pdf"):
        assert (folder / "figures" / f"{plots.LEARNT_FIGURE}.{kind}").exists()
    rows = pd.read_csv(folder / "curves.csv").query("figure == @plots.LEARNT_FIGURE")
    lines = rows.groupby(["line", "metric", "panel"], sort=False)["n"].unique().map(list).to_dict()
    panels, layers = ("Swish", "ChannelSwish"), (1, 2, 3)
    assert lines == {
        (f"layer {n}", "learnt_activation", panel): [2] for panel in panels for n in layers
    }


def test_a_study_without_learnt_parameters_has_no_such_figure(copied):
    text = STUDY.replace(GRID, "[relu]").partition("figures:")[0]
    column = "  - {metric: activation/beta, condition: layer=2, ranked: false}\n"
    (copied / "study.yaml").write_text(text.replace(column, ""))
    loaded = results.load(StudyFolder(reading.load("study.yaml"), copied / "runs/study"))
    assert loaded.finished == 2
    assert read(loaded) == []


@pytest.mark.parametrize(
    ("unit", "column", "message"),
    [
        ("prelu", "activation/slope, condition: layer=1", "unknown metric 'activation/slope'"),
        (
            "prelu",
            "activation/weight",
            "expected a 'condition', as each layer records it. Add one, such as layer=1.",
        ),
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
    text = STUDY.replace(GRID, f"[{unit}]").partition("figures:")[0]
    text = text.replace("activation/beta, condition: layer=2, ranked: false", column)
    (tmp_path / "study.yaml").write_text(text)
    outcome = cli("study", "plan", "study.yaml")
    assert (outcome.code, message is None or message in outcome.err) == (
        2 if message else 0,
        True,
    ), outcome.err


def test_a_diverged_run_has_no_parameters_at_its_end(tmp_path):
    beta = {"metric": "activation/beta", "condition": "layer=1"}
    figure = {"y": {beta["metric"]: None}, "condition": "layer=1"}
    plan = study(grids=({ACT: ["mine"]},), select=Selection(), table=(beta,), figures=(figure,))
    for run in plan.runs():
        rows = [
            Row(float(e), e, "activation", "beta", "layer=1", 0.1 * e)
            for e in (1, 2, 3)[: 3 - run.seed]
        ]
        write(tmp_path, run, {"val/loss": [1.0]}, DIVERGED if run.seed else FINISHED, rows)
    loaded = results.load(StudyFolder(plan, tmp_path))
    (row,) = table_of(loaded).rows
    assert row.columns[0].values == {0: pytest.approx(0.3)}
    (line,) = read(loaded)[0].lines
    assert line.curve.band.median.tolist() == pytest.approx([0.1, 0.2])


def test_runs_that_are_missing_may_record_them(tmp_path):
    beta = {"metric": "activation/beta", "condition": "layer=1"}
    plan = study(
        grids=({ACT: ["relu", "mine"]},), select=Selection(), table=({"metric": "test/error"}, beta)
    )
    first, *_, last = plan.runs()
    write(tmp_path, first, {"test/error": [0.1]})
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert [cell.median for cell in table_of(loaded).rows[0].columns] == [0.1, None]
    write(
        tmp_path,
        last,
        {"test/error": [0.1]},
        rows=[Row(1.0, 1, "activation", "beta", "layer=1", 0.5)],
    )
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert [cell.median for cell in table_of(loaded).rows[1].columns] == [0.1, 0.5]
    with pytest.raises(ActlabError, match="condition of activation/beta"):
        loaded.metrics.check("activation/beta", "layer=7")
