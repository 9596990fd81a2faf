"""``actlab study`` through its public door, on a study of seconds."""

import csv
import json
import re
import shutil
import tarfile
from functools import partial
from pathlib import Path

import pytest

from actlab.analysis import costs
from actlab.checks import cost
from actlab.engines.running import busy
from actlab.runtime import devices
from actlab.storage.json_files import read_json
from actlab.studies import reading
from actlab.studies.locks import holding
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder
from tiny_study import trained_once

STUDY = """\
title: A tiny study
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 2
  trainer.limit_train_batches: 4
  model.network.hidden: [8]
grid:
  model.activation: [relu, elu]
  model.optimizer.lr: [1.0e-2, 1.0e-3]
seeds: 2
select: {tune: [model.optimizer.lr]}
table:
  - {metric: test/error, at: last, percent: true}
  - {metric: val/loss, at: best}
published:
  source: a paper
  values:
    - {where: {model.activation: relu}, metric: test/error, at: last, value: 0.1234}
figures:
  - {name: curves, lines: model.activation, y: {val/loss: heldout}, label: log loss,
     panels: [{title: loss}]}
notes: [a note to the reader]
"""

LOW = ["--set", "model.optimizer.lr=1e-2"]  # half of the runs


@pytest.fixture
def study(study):
    return partial(study, STUDY, name="tiny")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of the finished study, which tests copy."""
    return trained_once(tmp_path_factory.mktemp("trained"), STUDY, "tiny", "--html")


@pytest.fixture
def finished(study, tmp_path, trained):
    """``study`` in a folder where all of it has been run."""
    shutil.copytree(trained, tmp_path / "runs")
    return study


def test_a_study_whose_runs_all_diverge_has_a_table_and_a_page(study, tmp_path):
    """They recorded nothing that could be drawn."""
    first = study("run", "--html", "--set", "model.optimizer.lr=1e30", "--set", "seeds=1")
    assert first.code == 0, first.err
    assert "2 of 2 runs finished, 2 of which diverged" in first.out
    assert (tmp_path / "runs/tiny/report.html").exists()
    assert not (tmp_path / "runs/tiny/figures").exists()


def test_graphs_are_stored_with_the_study(study, tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "graphs", None)
    outcome = study("run", "--graphs", "--jobs", "0", *LOW, "--set", "seeds=1")
    assert outcome.code == 0, outcome.err
    assert devices.graphs is True
    assert read_json(tmp_path / "runs/tiny/engine.json", dict, "")["graphs"] is True


def test_a_second_run_executes_nothing(finished, tmp_path, trained):
    first = (trained.parent / "out.txt").read_text()
    assert "tiny/report.html" in first
    assert "8 runs, 0 finished, 8 to run" in first
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/tiny/*-seed*/*.*")}
    table = tmp_path / "runs/tiny/table.json"
    table.unlink()
    closed = next(tmp_path.glob("runs/tiny/*-seed*"))
    (closed / "metrics.csv").touch()  # which a kill leaves while the run is closed
    second = finished("run")
    assert "8 runs, 8 finished, 0 to run" in second.out
    assert "have no log" not in second.out
    # By which `actlab report` knows it
    assert json.loads(table.read_text())["compare"] == "model.activation"
    assert times == {
        path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/tiny/*-seed*/*.*")
    }
    for text in (first, second.out, finished("show").out):
        assert all(word in text for word in ("A tiny study", "relu", "elu", "a note to the reader"))
        assert "12.34" not in text  # published values are not of samples
        assert "Published values are left out" in text
    assert {p.suffix for p in (tmp_path / "runs/tiny/figures").iterdir()} == {".png", ".svg"}
    assert {"table.md", "table.json", "values.csv", "curves.csv", "cost.json"} <= {
        p.name for p in (tmp_path / "runs/tiny").iterdir()
    }
    paged = finished("report", "--html")
    assert paged.out.splitlines()[-1].endswith("report.html")


def test_cost_is_measured_for_every_unit_in_the_precision_that_was_trained_in(
    study, tmp_path, trained
):
    costs = {c["compared"]: c for c in read_json(trained / "tiny/cost.json", list, "")}
    assert costs.keys() == {"relu", "elu"}
    assert min(entry["seconds_per_update"] for entry in costs.values()) > 0
    # kept for the backward of one batch: the images, the hidden layer, the log-probabilities and
    # the labels
    least = 500 * (784 * 4 + 8 * 4 + 10 * 4 + 8)
    assert least <= costs["relu"]["bytes_kept"] <= least + 500 * (8 * 4 + 10 * 4 + 8) + 64
    half = ["trainer.precision=bf16-true", "model.activation=relu", "seeds=1"]
    assert study("run", *LOW, *(word for setting in half for word in ("--set", setting))).code == 0
    (cost,) = read_json(tmp_path / "runs/tiny/cost.json", list, "")
    assert cost["bytes_kept"] < 0.6 * costs["relu"]["bytes_kept"]


def test_costs_of_a_table_were_measured_together(finished, tmp_path):
    """A ratio of times from two moments would show how busy the machine was."""
    few = [*LOW, "--set", "seeds=1"]
    for activations in ("[relu,silu]", "[relu,elu,silu]"):  # relu and elu were measured before
        assert finished("run", *few, "--set", f"model.activation={activations}").code == 0
    found = reading.load(
        "tiny.yaml", overrides=["model.activation=[relu,elu,silu]", "seeds=1", LOW[1]]
    )
    measured = costs.timed(costs.read(StudyFolder(found, tmp_path / "runs/tiny"))[0])
    assert [entry["compared"] for entry in measured] == ["relu", "elu", "silu"]
    assert len({entry["measured"] for entry in measured}) == 1
    file = tmp_path / "runs/tiny/cost.json"
    before = file.read_bytes()
    # Relu and elu alone: the first measurement still has both
    assert finished("run", *few).code == 0
    assert file.read_bytes() == before


def test_a_kill_while_costs_are_measured_leaves_them_to_the_next_start(
    finished, tmp_path, monkeypatch
):
    def killed(*args, **options):
        raise KeyboardInterrupt

    file = tmp_path / "runs/tiny/cost.json"
    file.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(cost, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            finished("run")
    assert "time\n" not in finished("show").out
    assert not file.exists()
    for damage in (None, "{", '{"digest": "x", "content": []}'):
        if damage:
            file.write_text(damage)
        assert "0 to run" in finished("run").out
        assert {entry["compared"] for entry in read_json(file, list, "")} == {"relu", "elu"}
    before = file.stat().st_mtime_ns
    finished("run")
    assert file.stat().st_mtime_ns == before


def test_costs_of_a_busy_machine_are_left_out_until_it_is_idle(finished, tmp_path, monkeypatch):
    file = tmp_path / "runs/tiny/cost.json"
    file.unlink()
    monkeypatch.setattr("actlab.engines.running.busy", busy)
    for load, kept in ((9.0, False), (0.5, True)):
        monkeypatch.setattr(
            cost, "state_of_machine", lambda trials, load=load: {"load": load, "cores": 2}
        )
        out = finished("run").out
        assert (
            "other programs kept the machine busy (load 9.0 on 2 cores); the same command" in out
        ) != kept
        assert ("Costs were not measured: " in out) != kept
        assert ("Time and memory: an update" in out) == file.exists() == kept


def test_plan_lists_runs_and_cost(study, tmp_path, trained):
    before = study("plan", "--time")
    assert before.code == 0
    assert before.out.count("waiting  ") == 8
    assert "16 epochs of training left" in before.out
    assert "4 updates per epoch" in before.out
    shutil.copytree(trained, tmp_path / "runs")
    after = study("plan").out
    assert after.count("finished ") >= 8
    assert "0 not finished" in after


def test_an_unpacked_archive_without_checkpoints_is_finished(finished, tmp_path):
    table = finished("show").out
    with tarfile.open(tmp_path / "tiny.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add(
            "runs/tiny", filter=lambda file: None if file.name.endswith("/checkpoints") else file
        )
    shutil.rmtree(tmp_path / "runs")
    with tarfile.open(tmp_path / "tiny.tar.gz") as archive:
        archive.extractall(filter="data")
    assert not list(tmp_path.glob("runs/tiny/*/checkpoints"))
    assert finished("show").out == table
    assert "8 runs, 8 finished, 0 to run" in finished("run").out


def test_a_unit_from_a_scratch_file_joins_the_grid_and_an_edited_one_is_another(finished, tmp_path):
    scratch = tmp_path / "scratch.py"
    scratch.write_text("def square(x):\n    return x.clamp(0, 3) ** 2\n")
    words = [*LOW, "--activation", "./scratch.py:square"]
    outcome = finished("run", *words, "--activation", "{name: elu, alpha: 0.5}")
    assert outcome.code == 0, outcome.err
    assert "8 runs, 4 finished, 4 to run" in outcome.out
    assert all(word in outcome.out for word in ("square", "elu(alpha=0.5)"))
    assert "square" in finished("show", *words).out
    scratch.write_text("def square(x):\n    return x.clamp(0, 2) ** 2\n")
    outcome = finished("run", *words)
    assert "6 runs, 4 finished, 2 to run" in outcome.out
    changed = "2 finished runs, because", f"{scratch}:square has been changed since"
    for text in (outcome.out, finished("show", *words).err):
        assert all(part in text for part in changed)


def test_smoke_lies_apart(study, tmp_path):
    assert study("run", "--smoke", *LOW, "--set", "model.activation=relu").code == 0
    assert (tmp_path / "runs/tiny-smoke").is_dir()
    assert not (tmp_path / "runs/tiny").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--activation", "gleu"], ["'gleu'", "'gelu'"]),
        (["--set", "model.activatoin=relu"], ["'model.activatoin'", "'model.activation'"]),
        (
            ["--set", "data.sample=false", "--set", "data.dataset=./nowhere/at/all"],
            ["./nowhere/at/all"],
        ),
        (
            ["--logger", "actlab.errors.ActlabError"],
            ["ActlabError", "csv, tensorboard, wandb or the import path", "CSVLogger"],
        ),
        (["--set", "trainer.max_epohcs=1"], ["'trainer.max_epohcs'", "'trainer.max_epochs'"]),
        (["--set", "model.optimzer.lr=1"], ["'model.optimzer.lr'", "'model.optimizer.lr'"]),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_trained(study, tmp_path, words, parts):
    outcome = study("run", *words)
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert all(part in line for part in parts)
    assert not list(tmp_path.glob("runs/tiny/*/result.json"))


def test_every_run_has_a_logger_of_its_own_and_those_that_finished_without_one_are_named(
    finished, tmp_path
):
    """In a stack; `test_wandb_runs.py` logs runs alone, too."""
    outcome = finished(
        "run", *LOW, "--activation", "silu", "--logger", "pytorch_lightning.loggers.CSVLogger"
    )
    assert outcome.code == 0, outcome.err
    assert (
        "4 of 6 finished runs have no log, because they were trained without --logger: relu"
        in outcome.out
    )
    logs = list((tmp_path / "runs/tiny").glob("silu-*/version_0/metrics.csv"))
    assert len(logs) == 2
    for log in logs:
        rows = list(csv.DictReader(log.read_text().splitlines()))
        assert sum(bool(row.get("val/loss")) for row in rows) >= 2
        assert {"train/loss", "test/error"} <= rows[0].keys()
        assert "activation" in (log.parent / "hparams.yaml").read_text()


def test_a_resumed_run_goes_on_in_its_own_history(study, tmp_path, monkeypatch):
    """One of two has finished when the study is killed, and stays closed; no path is logged."""
    words = ["--set", "model.activation=relu"]
    words += [
        "--logger",
        "actlab.reports.wandb.RunLogger",
        "--set",
        f"data.cache_dir={tmp_path}/cache",
    ]
    words += ["--set", "trainer.max_epochs=1", *LOW]
    finish, calls = RunFolder.finish, iter([True])

    def killed(self, *args, **facts):
        if not next(calls, False):
            raise KeyboardInterrupt
        finish(self, *args, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            study("run", *words)
    (finished,) = (path.parent for path in tmp_path.glob("runs/tiny/*/result.json"))
    assert study("run", *words).code == 0
    logs = list((tmp_path / "runs/tiny/wandb").glob("offline-run-*/*.wandb"))
    ids = [log.stem.removeprefix("run-") for log in logs]
    assert len(set(ids)) == 2
    assert ids.count(json.loads((finished / "logger.json").read_text())["id"]) == 1
    for log in logs:
        assert str(tmp_path).encode() not in log.read_bytes()
        assert str(Path.cwd()).encode() not in log.read_bytes()


def test_runs_of_another_process_are_left_to_it(finished, tmp_path):
    for path in tmp_path.glob("runs/tiny/elu-lr0.01-*/result.json"):
        path.unlink()
    assert "6 of 8 runs finished" in finished("show").out
    runs = reading.load(str(tmp_path / "tiny.yaml")).runs()
    with holding(
        tmp_path / "runs/tiny", [run.id for run in runs if run.id.startswith("elu-lr0.01-")]
    ):
        outcome = finished("run")
    assert outcome.code == 0, outcome.err
    assert "2 runs are being trained by another process" in outcome.out
    assert "6 of 8 runs finished" in outcome.out
    assert "8 of 8 runs finished" in finished("run").out


def test_a_report_without_runs_says_what_to_do(study):
    outcome = study("report")
    assert outcome.code == 2
    assert "run" in outcome.err


def test_an_own_activation_gets_the_command_for_enough_seeds_and_extensions_are_recorded(
    cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    short = STUDY.replace("[relu, elu]\n  model.optimizer.lr: [1.0e-2, 1.0e-3]", "[gelu, relu]")
    short = short.replace("max_epochs: 2", "max_epochs: 1").replace("batches: 4", "batches: 1")
    short = short.replace("at: last, percent: true}", "at: last, percent: true, margin: 0.02}")
    (tmp_path / "tiny.yaml").write_text(short.replace("select: {tune: [model.optimizer.lr]}\n", ""))
    first = cli("study", "run", "tiny.yaml", "--activation", "silu", "--jobs", "0").out.splitlines()
    assert first[-2].startswith("This command trains enough seeds for the margin, in about ")
    command = (
        r"  actlab study run tiny\.yaml --activation silu --jobs 0 --seeds \d+ --reference gelu"
    )
    assert re.fullmatch(command, first[-1])
    broken = tmp_path / "broken.py"
    broken.write_text("def flat(x):\n    return x.mean()\n")
    alone = cli(
        "study", "run", "tiny.yaml", "--activation", "silu", "--activation", f"{broken}:flat"
    )
    assert alone.code == 1
    assert "enough seeds" not in alone.out, "the activation must be corrected first"
    words = ("study", "run", "tiny.yaml", "--activation", "silu", "--reference", "gelu", "--seeds")
    assert "enough seeds" not in cli(*words, "8").out
    extended = cli(*words, "9").out
    assert (
        "The study was extended after 1 verdict, by seeds or by trials of a search, or cut short."
        in extended
    )
    assert "and 2 looks" in extended
