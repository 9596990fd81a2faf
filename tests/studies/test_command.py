"""``actlab study`` through its public door, on a study of seconds."""

import csv
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from actlab.analysis import results
from actlab.engines import cost
from actlab.storage.files import read_json
from actlab.studies import reading
from actlab.studies.folders import RunFolder
from actlab.studies.locks import holding
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
  - {name: curves, lines: model.activation, y: {val/loss: heldout}, label: log loss, panels: [{title: loss}]}
notes: [a note to the reader]
"""

ACTIVATIONS = "model.activation: [gelu, relu]"


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return lambda command, *words: cli("study", command, "tiny.yaml", *words)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of the finished study, which tests copy."""
    return trained_once(tmp_path_factory.mktemp("trained"), STUDY)


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


def test_a_second_run_executes_nothing(study, tmp_path):
    first = study("run", "--html")
    assert first.code == 0, first.err
    assert "tiny/report.html" in first.out
    assert "8 runs, 0 finished, 8 to run" in first.out
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/tiny/*-seed*/*.*")}
    table = tmp_path / "runs/tiny/table.json"
    table.unlink()
    closed = next(tmp_path.glob("runs/tiny/*-seed*"))
    (closed / "metrics.csv").touch()  # which a kill leaves while the run is closed
    second = study("run")
    assert "8 runs, 8 finished, 0 to run" in second.out
    assert json.loads(table.read_text())["compare"] == "model.activation"  # by which `actlab report` knows it
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/tiny/*-seed*/*.*")}
    for text in (first.out, second.out, study("show").out):
        assert all(word in text for word in ("A tiny study", "relu", "elu", "a note to the reader"))
        assert "12.34" not in text  # published values are not of samples
        assert "Published values are left out" in text
    assert {p.suffix for p in (tmp_path / "runs/tiny/figures").iterdir()} == {".png", ".svg"}
    assert {"table.md", "table.json", "values.csv", "curves.csv", "cost.json"} <= {
        p.name for p in (tmp_path / "runs/tiny").iterdir()
    }
    paged = study("report", "--html")
    assert paged.out.splitlines()[-1].endswith("report.html")


def test_cost_is_measured_for_every_unit_against_the_reference(study, tmp_path):
    study("run", "--engine", "sequential", "--set", "seeds=1")
    costs = {c["compared"]: c for c in read_json(tmp_path / "runs/tiny/cost.json", list, "")}
    assert costs.keys() == {"relu", "elu"}
    assert costs["relu"]["relative_to_reference"] == costs["relu"]["bytes_relative"] == 1
    assert costs["elu"]["seconds_per_update"] > 0
    # kept for the backward of one batch: the images, the hidden layer, the log-probabilities and the labels
    least = 500 * (784 * 4 + 8 * 4 + 10 * 4 + 8)
    assert least <= costs["relu"]["bytes_kept"] <= least + 500 * (8 * 4 + 10 * 4 + 8) + 64


def test_costs_of_a_table_were_measured_together(study, tmp_path):
    """A ratio of times from two moments would show how busy the machine was."""
    few = ["--set", "model.optimizer.lr=1e-2", "--set", "seeds=1"]
    for activations in ("[relu,elu]", "[relu,silu]", "[relu,elu,silu]"):
        assert study("run", *few, "--set", f"model.activation={activations}").code == 0
    found = reading.load("tiny.yaml", overrides=["model.activation=[relu,elu,silu]", "seeds=1", few[1]])
    costs = results.load(found, tmp_path / "runs/tiny").costs
    assert [entry["compared"] for entry in costs] == ["relu", "elu", "silu"]  # type: ignore[typeddict-item]
    assert len({entry["measured"] for entry in costs}) == 1
    file = tmp_path / "runs/tiny/cost.json"
    before = file.read_bytes()
    assert study("run", *few).code == 0  # relu and elu alone: the first measurement still has both
    assert file.read_bytes() == before


def test_a_kill_while_costs_are_measured_leaves_them_to_the_next_start(study, tmp_path, monkeypatch):
    def killed(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cost, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            study("run", "--set", "seeds=1")
    assert "time\n" not in study("show", "--set", "seeds=1").out
    file = tmp_path / "runs/tiny/cost.json"
    assert not file.exists()
    for damage in (None, "{", '{"digest": "x", "content": []}'):
        if damage:
            file.write_text(damage)
        assert "0 to run" in study("run", "--set", "seeds=1").out
        assert {entry["compared"] for entry in read_json(file, list, "")} == {"relu", "elu"}
    before = file.stat().st_mtime_ns
    study("run", "--set", "seeds=1")
    assert file.stat().st_mtime_ns == before


def test_costs_are_of_the_precision_that_was_trained_in(study, tmp_path):
    kept = {}
    for precision in ("32-true", "bf16-true"):
        words = ("--set", "seeds=1", "--set", f"trainer.precision={precision}", "--runs-dir", precision)
        assert study("run", *words).code == 0
        kept[precision] = read_json(tmp_path / precision / "tiny/cost.json", list, "")[0]["bytes_kept"]
    assert kept["bf16-true"] < 0.6 * kept["32-true"]


def test_plan_lists_runs_and_cost(study, tmp_path, trained):
    before = study("plan", "--time")
    assert before.code == 0
    assert before.out.count("to run") == 8
    assert "16 epochs of training left" in before.out
    assert "4 updates per epoch" in before.out
    shutil.copytree(trained, tmp_path / "runs")
    after = study("plan").out
    assert after.count("finished ") >= 8
    assert "0 not finished" in after


def test_a_unit_from_a_scratch_file_joins_the_grid(study, tmp_path):
    (tmp_path / "scratch.py").write_text("def square(x):\n    return x.clamp(0, 3) ** 2\n")
    outcome = study("run", "--activation", "./scratch.py:square", "--activation", "{name: elu, alpha: 0.5}")
    assert outcome.code == 0, outcome.err
    assert "16 runs" in outcome.out
    assert all(word in outcome.out for word in ("square", "elu(alpha=0.5)"))
    assert "square" in study("show", "--activation", "./scratch.py:square").out


def test_an_unfinished_study_says_so(finished, tmp_path):
    next((tmp_path / "runs/tiny").glob("relu-*seed1*/result.json")).unlink()
    assert "7 of 8 runs finished" in finished("show").out


def test_an_unpacked_archive_without_checkpoints_is_finished(finished, tmp_path):
    table = finished("show").out
    with tarfile.open(tmp_path / "tiny.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add("runs/tiny", filter=lambda file: None if file.name.endswith("/checkpoints") else file)
    shutil.rmtree(tmp_path / "runs")
    with tarfile.open(tmp_path / "tiny.tar.gz") as archive:
        archive.extractall(filter="data")
    assert not list(tmp_path.glob("runs/tiny/*/checkpoints"))
    assert finished("show").out == table
    assert "8 runs, 8 finished, 0 to run" in finished("run").out


def test_runs_of_changed_settings_are_named_and_not_mixed(finished, tmp_path):
    (tmp_path / "scratch.py").write_text("def square(x):\n    return x.clamp(0, 3) ** 2\n")
    words = ["--activation", "./scratch.py:square"]
    finished("run", *words)
    (tmp_path / "scratch.py").write_text("def square(x):\n    return x.clamp(0, 2) ** 2\n")
    outcome = finished("run", *words)
    assert "12 runs, 8 finished, 4 to run" in outcome.out
    assert "4 finished runs in " in outcome.out
    assert "have other settings, data or code; they are ignored" in finished("show", *words).err


def test_smoke_lies_apart(study, tmp_path):
    assert study("run", "--smoke").code == 0
    assert (tmp_path / "runs/tiny-smoke").is_dir()
    assert not (tmp_path / "runs/tiny").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--activation", "gleu"], ["'gleu'", "'gelu'"]),
        (["--set", "model.activatoin=relu"], ["'model.activatoin'", "'model.activation'"]),
        (["--set", "data.sample=false", "--set", "data.dataset=./nowhere/at/all"], ["./nowhere/at/all"]),
        (
            ["--logger", "actlab.errors.ActlabError"],
            ["ActlabError", "csv, tensorboard, wandb or an", "CSVLogger"],
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


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_every_run_has_a_logger_of_its_own(study, tmp_path, engine):
    outcome = study("run", "--engine", engine, "--logger", "pytorch_lightning.loggers.CSVLogger")
    assert outcome.code == 0, outcome.err
    logs = list((tmp_path / "runs/tiny").glob("*/version_0/metrics.csv"))
    assert len(logs) == 8
    for log in logs:
        rows = list(csv.DictReader(log.read_text().splitlines()))
        assert sum(bool(row.get("val/loss")) for row in rows) >= 2
        assert {"train/loss", "test/error"} <= rows[0].keys()
        assert "activation" in (log.parent / "hparams.yaml").read_text()


def test_runs_that_finished_without_a_logger_are_named(study):
    few = ["--set", "model.optimizer.lr=1e-2", "--set", "seeds=1"]
    assert study("run", *few).code == 0
    words = ["--logger", "csv"]
    out = study("run", *few, "--activation", "silu", *words).out
    assert "2 of 3 finished runs have no log, because they were trained without --logger: relu" in out
    assert "have no log" not in study("run", *few, *words, "--runs-dir", "other").out


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_a_resumed_run_goes_on_in_its_own_history(study, tmp_path, monkeypatch, engine):
    """One of two has finished when the study is killed, and stays closed; nothing says where the disk is."""
    words = ["--set", "model.activation=relu", "--set", "seeds=1", "--engine", engine]
    words += ["--logger", "actlab.reports.wandb.RunLogger", "--set", f"data.cache_dir={tmp_path}/cache"]
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
    runs = reading.load(str(tmp_path / "tiny.yaml")).runs()
    for path in tmp_path.glob("runs/tiny/elu-*/result.json"):
        path.unlink()
    with holding(tmp_path / "runs/tiny", [run.id for run in runs if run.point["model.activation"] == "elu"]):
        outcome = finished("run")
    assert outcome.code == 0, outcome.err
    assert "4 runs are being trained by another process" in outcome.out
    assert "4 of 8 runs finished" in outcome.out
    assert "8 of 8 runs finished" in finished("run").out


def test_a_report_without_runs_says_what_to_do(study):
    outcome = study("report")
    assert outcome.code == 2
    assert "run" in outcome.err


def test_an_own_activation_gets_the_command_for_enough_seeds_and_extensions_are_recorded(
    cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    short = STUDY.replace("model.activation: [relu, elu]\n  model.optimizer.lr: [1.0e-2, 1.0e-3]", ACTIVATIONS)
    short = short.replace("at: last, percent: true}", "at: last, percent: true, margin: 0.02}")
    (tmp_path / "tiny.yaml").write_text(short.replace("select: {tune: [model.optimizer.lr]}\n", ""))
    first = cli("study", "run", "tiny.yaml", "--activation", "silu", "--jobs", "1").out.splitlines()
    assert first[-2].startswith("Seeds that show the margin, about ")
    command = r"  actlab study run tiny\.yaml --activation silu --jobs 1 --seeds \d+ --reference gelu"
    assert re.fullmatch(command, first[-1])
    broken = tmp_path / "broken.py"
    broken.write_text("def flat(x):\n    return x.mean()\n")
    alone = cli("study", "run", "tiny.yaml", "--activation", "silu", "--activation", f"{broken}:flat")
    assert alone.code == 1
    assert "Seeds that show" not in alone.out, "the activation must be corrected first"
    words = ("study", "run", "tiny.yaml", "--activation", "silu", "--reference", "gelu", "--seeds")
    assert "Seeds that show" not in cli(*words, "8").out
    extended = cli(*words, "10").out
    assert (
        "The study was extended after 1 verdict, by seeds or by trials of a search, or cut short." in extended
    )
    assert "and 2 looks" in extended
