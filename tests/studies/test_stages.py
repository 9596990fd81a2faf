"""Stages, blocks and probes of a study, through the command line."""

import json
import re
import shutil

import pandas as pd
import pytest
import pytorch_lightning as pl

from actlab import experiments
from actlab.stages import opening
from actlab.storage.json_files import read_json, write_json
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file
from actlab.studies import reading
from actlab.studies.study_folder import SELECTION, StudyFolder
from actlab.tasks import ClassificationTask
from tiny_study import trained_once
from tolerances import ROUNDED, counted
from written_runs import write

BASE = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 1
  trainer.limit_train_batches: 4
  model.network.hidden: [8]
"""
STAGED = (
    BASE
    + """\
grid:
  model.activation: [relu, elu]
  model.optimizer.lr: [3.0e-2, 1.0e-5]
select: {tune: [model.optimizer.lr]}
stages:
  - {name: choose, seeds: 2}
  - {name: compare, seeds: 5-7, set: {data.train_on_all: true}}
table: [{metric: test/error, at: last, percent: true}]
"""
)


def loaded(tmp_path, **options):
    study = reading.load(str(tmp_path / "mine.yaml"), **options)
    return [
        stage.study for stage in opening.opened(StudyFolder(study, tmp_path / "runs/mine")).stages
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_once(tmp_path_factory.mktemp("trained"), STAGED, "mine")


def test_a_study_of_two_stages(study, tmp_path, trained):
    before = study(STAGED, "plan").out
    assert before.count("waiting  ") == 8
    assert "then stage compare: 2 grid points at selected settings × 3 seeds" in before
    shutil.copytree(trained, tmp_path / "runs")
    out = (trained.parent / "out.txt").read_text()
    first, second = loaded(tmp_path)
    assert (len(first.runs()), len(second.runs())) == (8, 6)
    assert {run.seed for run in second.runs()} == {5, 6, 7}
    assert second.chosen_on == {0, 1}
    # 1e-5 learns nothing in 4 updates
    assert {run.point["model.optimizer.lr"] for run in second.runs()} == {0.03}
    assert all(run.config["data"]["init_args"]["train_on_all"] for run in second.runs())
    table = [line.split() for line in out.splitlines() if line.startswith(("relu", "elu"))]
    assert sorted(line[:4] for line in table) == [
        ["elu", "0.03", "(edge)", "2"],  # chosen, settings tried
        ["relu", "0.03", "(edge)", "2"],
    ]
    assert "6 of 6 runs finished. 2 activations, 3 seeds (5–7)." in out
    assert "stage compare" in out


def test_a_chosen_value_at_the_edge_of_its_grid_is_flagged(study, tmp_path, trained):
    """In the stage that chose and in the next one; not where the grid goes on to both sides."""
    shutil.copytree(trained, tmp_path / "runs")
    for words in ([], ["--stage", "choose"]):
        rows = json.loads(study(STAGED, "show", "--json", *words).out)["rows"]
        assert [row["edges"] for row in rows] == [["model.optimizer.lr"]] * 2
        out = study(STAGED, "show", *words).out
        assert out.count("0.03 (edge)") == 2
        assert "(edge): the chosen value is the lowest or highest that was tried" in out
    wider = study(
        STAGED, "show", "--stage", "choose", "--set", "model.optimizer.lr=[0.1, 0.03, 1e-5]"
    )
    assert wider.out.count("0.03*") == 2
    assert "(edge)" not in wider.out


def test_half_of_an_archive_says_which_stage_cannot_be_shown(study, tmp_path, trained):
    """The runs of the second stage are there, the selection and most runs of the first are not."""
    shutil.copytree(trained, tmp_path / "runs")
    root = tmp_path / "runs/mine"
    assert "are not shown" not in study(STAGED, "show").out
    (root / SELECTION).unlink()
    first, *others = root.glob("*-seed[01]-*")
    for path in others:
        shutil.rmtree(path)
    said = (
        f"6 finished runs of stage compare are not shown: the stage requires {SELECTION} or "
        "the 7 missing"
    )
    for command in ("show", "plan"):
        assert said in study(STAGED, command).out, command
    shutil.rmtree(first)
    assert said.replace("7", "8") in study(STAGED, "show").out


def test_the_selection_is_made_once_and_kept(study, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    path = tmp_path / "runs/mine/selection.json"
    stored = read_json(path, dict, "")
    assert {entry["chosen"]["model.optimizer.lr"] for entry in stored["compare"].values()} == {0.03}
    entry = next(e for e in stored["compare"].values() if e["point"]["model.activation"] == "elu")
    entry["chosen"]["model.optimizer.lr"] = 1e-5  # as if other runs had decided
    write_json(path, stored)
    # A unit that is added later is selected for by its own runs; what was selected stays.
    outcome = study(STAGED, "run", "--activation", "silu")
    assert outcome.code == 0, outcome.err
    runs = loaded(tmp_path, activations=["silu"])[1].runs()
    rates = {run.point["model.activation"]: run.point["model.optimizer.lr"] for run in runs}
    assert rates == {"relu": 0.03, "elu": 1e-5, "silu": 0.03}
    now = read_json(path, dict, "")["compare"]
    assert len(now) == 3
    assert {k: v for k, v in now.items() if k in stored["compare"]} == stored["compare"]


def test_a_selection_by_fewer_runs_than_there_are_is_said(study, tmp_path, trained):
    said = "selected by other runs"
    assert said not in (trained.parent / "out.txt").read_text()
    shutil.copytree(trained, tmp_path / "runs")
    outcome = study(STAGED, "run", "--set", "model.optimizer.lr=[3e-2, 1e-5, 1e-4]")
    assert outcome.code == 0, outcome.err
    words = " ".join(outcome.out.split())
    line = f"2 of 2 settings were {said} than"
    assert words.count(line) == 2, "before the stage is trained, and below its table"
    assert words.index(line) < words.index("stage compare: ")
    assert "Delete selection.json to select again." in words


def test_a_selection_by_runs_of_other_settings_is_made_again(study, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    path = tmp_path / "runs/mine/selection.json"
    before = path.read_bytes()
    out = study(STAGED, "plan", "--set", "trainer.limit_train_batches=2").out
    assert out.count("waiting  ") == 8
    assert "then stage compare: 2 grid points at selected settings" in out
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["[]", '{"compare": {"POINT": 1}}'])
def test_a_malformed_selection_is_rejected(study, tmp_path, trained, content):
    shutil.copytree(trained, tmp_path / "runs")
    path = tmp_path / "runs/mine/selection.json"
    point = next(iter(read_json(path, dict, "")["compare"]))
    path.write_text(content.replace('"POINT"', json.dumps(point)))
    for command in ("plan", "show", "report", "run"):
        outcome = study(STAGED, command)
        assert outcome.code == 2
        assert "selection.json" in outcome.err
        assert "Delete it." in outcome.err


def test_a_later_stage_waits_for_the_first(study, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    study(STAGED, "plan")
    (tmp_path / "runs/mine/selection.json").unlink()
    next((tmp_path / "runs/mine").glob("relu-*seed1*/result.json")).unlink()
    assert len(loaded(tmp_path)) == 1
    assert "stage choose" in study(STAGED, "show").out
    assert study(STAGED, "run").code == 0
    assert len(loaded(tmp_path)) == 2


def test_a_stage_alone_is_run_at_what_another_folder_has_selected(study, tmp_path, trained):
    early = study(STAGED, "run", "--stage", "compare")
    assert early.code == 2
    assert "no run of stage choose has begun. Run it first" in early.err
    root = tmp_path / "runs/mine"
    root.mkdir(parents=True, exist_ok=True)
    shutil.copy(trained / "mine/selection.json", root)
    assert study(STAGED, "plan", "--stage", "compare").out.count("waiting  ") == 6
    outcome = study(STAGED, "run", "--stage", "compare", "--report")
    assert outcome.code == 0, outcome.err
    assert {path.parent.name for path in root.glob("*/result.json")} == {
        path.parent.name for path in (trained / "mine").glob("*seed[567]*/result.json")
    }
    chosen = json.loads(study(STAGED, "show", "--json").out)["rows"][0]["chosen"]
    assert chosen == {"model.optimizer.lr": 0.03}


def test_a_stage_that_has_begun_is_not_to_be_run_first(study, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    words = ["--activation", "silu"]  # has not been selected for, so the second stage waits again
    kept = study(STAGED, "clean", *words).out
    left = "4 of 12 runs of stage choose have not ended. Run the study again"
    assert "no run in runs/mine belongs to this plan, or one of its stages has not opened" in kept
    early = study(STAGED, "show", "--stage", "compare", *words)
    assert early.code == 2
    assert left in early.err
    assert "run stage choose" not in early.err.lower()


def test_show_takes_the_stage_that_is_asked_for(study, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    assert "stage choose" in study(STAGED, "show", "--stage", "choose").out
    before = (tmp_path / "runs/mine/table.json").read_bytes()
    assert study(STAGED, "report", "--stage", "choose", "--html").code == 0
    chose = tmp_path / "runs/mine/choose"
    assert json.loads((chose / "table.json").read_text())["title"].endswith("stage choose")
    assert (tmp_path / "runs/mine/table.json").read_bytes() == before
    links = re.findall(r'href="([^"]*seed[^"]*)"', (chose / "report.html").read_text())
    assert links
    assert all((chose / link / "result.json").exists() for link in links)
    wrong = study(STAGED, "show", "--stage", "chose")
    assert wrong.code == 2
    assert "did you mean 'choose'" in wrong.err
    without = study(STAGED.split("select:")[0], "show", "--stage", "choose")
    assert without.code == 2
    assert "has no stages" in without.err


BLOCKS = """\
title: Two networks
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 1
  trainer.limit_train_batches: 4
blocks:
  - name: narrow
    base: mnist_classifier
    set: {model.network.hidden: [8]}
    grid: {model.activation: [relu, elu]}
  - {name: wide, base: ./wide.yaml, grid: {model.activation: [relu], model.network.dropout: [0.5]}}
seeds: 2
table: [{metric: test/error, at: last, percent: true}]
"""


def test_blocks_with_bases_of_their_own(study, tmp_path):
    base = read_mapping(config_file("mnist_classifier"))
    base["model"]["init_args"]["network"]["init_args"]["hidden"] = [32]
    (tmp_path / "wide.yaml").write_text(json.dumps(base))
    (tmp_path / "mine.yaml").write_text(BLOCKS)
    (plan,) = loaded(tmp_path, activations=["silu"])
    widths = {
        run.point["block"]: run.config["model"]["init_args"]["network"]["init_args"]["hidden"]
        for run in plan.runs()
    }
    assert widths == {"narrow": [8], "wide": [32]}
    for run in plan.runs():
        write(tmp_path / "runs/mine", run, {"test/error": [0.5]})
    out = study(BLOCKS, "show", "--activation", "silu").out
    lines = [line.removeprefix("> ") for line in out.splitlines()]  # > marks the user's activation
    rows = [line.split()[:3] for line in lines if line.startswith(("narrow", "wide"))]
    assert rows == [
        ["narrow", "relu", "0"],
        ["narrow", "elu", "0"],
        ["narrow", "silu", "0"],
        ["wide", "relu", "0.5"],
        ["wide", "silu", "0.5"],
    ]


PROBED = (
    BASE
    + """\
grid: {model.activation: [relu, soi]}
seeds: 2
keep: [best, 0, 1]
table: [{metric: test/error, at: last, percent: true}]
"""
)
NOISE = """\
probes:
  - {name: noise, class_path: actlab.probes.InputNoise,
     init_args: {strengths: [0.0, 0.5, 1.0]}, at: last}
"""
EVALUATION = "probes: [{name: untrained, class_path: actlab.probes.Evaluation, at: 0}]\n"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished study without probes."""
    return trained_once(tmp_path_factory.mktemp("kept"), PROBED, "mine")


@pytest.fixture(scope="module")
def probed(tmp_path_factory, kept):
    """The same with probes."""
    folder = tmp_path_factory.mktemp("probed")
    shutil.copytree(kept, folder / "runs")
    return trained_once(folder, PROBED + NOISE, "mine")


def files(tmp_path):
    return {
        p: (p.stat().st_mtime_ns, p.read_bytes())
        for p in tmp_path.glob("runs/mine/*/*")
        if p.is_file()
    }


def test_a_probe_is_added_to_a_finished_study(study, tmp_path, kept):
    shutil.copytree(kept, tmp_path / "runs")
    before = files(tmp_path)
    table = PROBED.replace(
        "table: [", "table: [{metric: noise/test/error, condition: noise=1, percent: true}, "
    )
    outcome = study(table + NOISE, "run")
    assert outcome.code == 0, outcome.err
    assert "0 to run" in outcome.out
    assert "noise=1" in outcome.out
    assert files(tmp_path) == before, "what is finished stays untouched"
    for folder in (tmp_path / "runs/mine").glob("*-seed*"):
        rows = pd.read_parquet(folder / "probes").set_index(["metric", "condition"])
        assert set(rows.index) == {
            (m, f"noise={a}") for m in ("loss", "error", "accuracy") for a in ("0", "0.5", "1")
        }
        final = json.loads((folder / "result.json").read_text())["summary"]
        # Without noise it is the test error, SOI's evaluation included.
        assert rows.loc[("error", "noise=0"), "value"] == counted(final["test/error"][""]["last"])
        assert rows.loc[("loss", "noise=0"), "value"] == pytest.approx(
            final["test/loss"][""]["last"], rel=ROUNDED
        )
        assert rows.loc[("loss", "noise=1"), "value"] != rows.loc[("loss", "noise=0"), "value"]
        assert rows["epoch"].unique().tolist() == [1]
    probes = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/mine/*/probes/*")}
    study(table + NOISE, "run")
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/mine/*/probes/*")} == probes


def test_an_interrupted_or_changed_probe_is_evaluated_where_it_is_missing(study, tmp_path, probed):
    shutil.copytree(probed, tmp_path / "runs")
    probes = sorted(tmp_path.glob("runs/mine/*/probes/noise-*.parquet"))
    times = {p: p.stat().st_mtime_ns for p in probes}
    probes[0].unlink()
    probes[1].write_bytes(probes[1].read_bytes()[:100])
    study(PROBED + NOISE, "run")
    changed = [p.stat().st_mtime_ns != times[p] for p in probes]
    assert changed == [True, True, False, False]
    study(PROBED + NOISE.replace("1.0]", "1.0, 2.0]"), "run")
    assert all("noise=2" in set(pd.read_parquet(p.parent)["condition"]) for p in probes)
    assert not any(p.exists() for p in probes)


def test_a_run_without_its_probe_is_named_below_the_table(study, tmp_path, probed):
    """The column of the probe has one run less than the column of runs says."""
    shutil.copytree(probed, tmp_path / "runs")
    table = (
        PROBED.replace("table: [", "table: [{metric: noise/test/error, condition: noise=1}, ")
        + NOISE
    )
    assert "Not measured" not in study(table, "show").out
    lacking = next(tmp_path.glob("runs/mine/soi-seed1-*"))
    shutil.rmtree(lacking / "probes")
    out = study(table, "show").out
    assert f"for 1 of 4 runs ({lacking.name}): the medians are over the others." in out
    assert "Run the same `actlab study run` command again to evaluate the missing probes." in out
    study(table, "run")
    assert "Not measured" not in study(table, "show").out


def test_probes_of_kept_checkpoints(study, tmp_path, kept):
    shutil.copytree(kept, tmp_path / "runs")
    text = PROBED + NOISE.replace("at: last", "at: [0, 1, best]")
    outcome = study(text, "run")
    assert outcome.code == 0, outcome.err
    for folder in (tmp_path / "runs/mine").glob("*-seed*"):
        names = {p.name for p in (folder / "checkpoints").iterdir()}
        assert names == {"last.ckpt", "best.ckpt", "epoch=0.ckpt", "epoch=1.ckpt"}
        rows = pd.read_parquet(folder / "probes")
        assert set(rows["epoch"]) >= {0, 1}
        losses = rows[(rows["metric"] == "loss") & (rows["condition"] == "noise=0")].set_index(
            "epoch"
        )["value"]
        assert losses[0].max() > losses[1].max()  # learning


def test_curves_hold_values_from_before_training(study, tmp_path, kept):
    shutil.copytree(kept, tmp_path / "runs")
    text = (
        PROBED
        + EVALUATION
        + "figures: [{name: curves, y: {test/loss: null, untrained/test/loss: null}}]\n"
    )
    outcome = study(text, "run", "--report")
    assert outcome.code == 0, outcome.err
    curves = pd.read_csv(tmp_path / "runs/mine/curves.csv")
    drawn = curves[curves["metric"] == "untrained/test/loss"].set_index("line")
    assert drawn["x"].to_dict() == {"relu": 0.0, "soi": 0.0}
    trainer, data = pl.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu"), None
    for unit in ("relu", "soi"):
        losses = []
        for folder in sorted((tmp_path / "runs/mine").glob(f"{unit}-seed*")):
            data = data or experiments.build(read_mapping(folder / "config.yaml")).data
            task = ClassificationTask.load_from_checkpoint(folder / "checkpoints/epoch=0.ckpt")
            losses.append(trainer.test(task, data, verbose=False)[0]["test/loss"])
        assert drawn.loc[unit, "median"] == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_an_evaluation_is_of_validation_or_test_data(study):
    outcome = study(PROBED + EVALUATION.replace("at: 0", "init_args: {split: train}"), "run")
    assert outcome.code == 2
    assert "split: expected 'val' or 'test', got 'train'" in outcome.err


def test_a_probe_names_a_checkpoint_that_was_not_kept(study, tmp_path, kept):
    shutil.copytree(kept, tmp_path / "runs")
    for checkpoint in tmp_path.glob("runs/mine/*/checkpoints/epoch=1.ckpt"):
        checkpoint.unlink()
    outcome = study(PROBED + NOISE.replace("at: last", "at: [1]"), "run")
    assert outcome.code == 0, outcome.err
    assert "has no checkpoint 'epoch=1'" in outcome.out


@pytest.mark.parametrize(
    ("probe", "word"),
    [
        (NOISE.replace("InputNoise", "InputNose"), "InputNose"),
        (NOISE.replace("strengths", "strenghts"), "strengths"),
        (NOISE.replace("[0.0, 0.5, 1.0]", "[-1.0]"), "-1.0"),
    ],
)
def test_mistakes_in_a_probe_are_rejected_before_training(study, tmp_path, probe, word):
    outcome = study(PROBED + probe, "run")
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert word in line
    assert not list(tmp_path.glob("runs/mine/*/result.json"))
