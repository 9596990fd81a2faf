"""``actlab study new``, ``status`` and ``clean``: a first file, the state, what may be deleted."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from actlab.cli import study_new
from actlab.engines.jobs import Job
from actlab.runtime.signals import Stopped
from actlab.storage.files import temporary
from actlab.storage.json_files import write_json
from actlab.storage.mappings import parse
from actlab.storage.resources import names_in, resource
from actlab.studies import reading, stacks
from actlab.studies.locks import holding
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from tiny_study import study_text, trained_once

TINY = study_text("model.activation: [relu, elu]", batches=1, model__network__hidden=[4])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of the finished study, which tests copy."""
    return trained_once(tmp_path_factory.mktemp("trained"), TINY)


@pytest.fixture
def root(trained):
    """The folder of the finished study, in the working directory."""
    Path("tiny.yaml").write_text(TINY)
    shutil.copytree(trained, "runs")
    return Path("runs/tiny")


def folders(root, *options):
    return {
        folder.run.id: folder for folder in (RunFolder(root, run) for run in study(*options).runs())
    }


def study(*options):
    return reading.load("tiny.yaml", overrides=options)


def write_stages(choose, compare):
    """Give the study two stages, of some seeds."""
    stages = f"stages: [{{name: choose, seeds: {choose}}}, {{name: compare, seeds: {compare}}}]\n"
    text = TINY.replace("seeds: 2\n", f"select: {{tune: [model.activation]}}\n{stages}")
    Path("tiny.yaml").write_text(text.replace("grid: {", "grid: {data.batch_size: [500], "))


def test_tables_of_runs_of_another_length_say_so(root, cli):
    shorter = ("show", "tiny.yaml", "--set", "trainer.max_epochs=1")
    assert "\nThese runs have 1 epoch, not 2.\n" in cli("study", *shorter).out
    assert "These runs have" not in cli("study", "show", "tiny.yaml").out


def test_one_run_is_counted_in_the_singular(root, cli):
    one = (
        "tiny.yaml",
        "--set",
        "model.activation=[gelu]",
        "--seeds",
        "1",
        "--set",
        "trainer.max_epochs=1",
    )
    assert (
        "tiny: 1 run, 1 not finished, 1 epoch of training left\n" in cli("study", "plan", *one).out
    )
    assert "tiny: 1 run in runs/tiny\n" in cli("study", "status", *one).out


def unfinish(folder, epochs=0, kept=True):
    """Make a finished run an unfinished one, as a kill leaves it."""
    (folder.path / "result.json").unlink()
    folder.rewrite([Row(epoch, epoch, "val", "loss", "", 0.5) for epoch in range(1, epochs + 1)])
    if not kept:
        folder.checkpoint.unlink()


def counts(out):
    """The numbers of the table of ``status``, by stage and column."""
    lines = out.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("stage "))
    rows = [line.split() for line in lines[header + 1 : lines.index("", header)]]
    return {row[0]: dict(zip(lines[header].split()[1:], row[1:], strict=False)) for row in rows}


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


# new


def test_the_new_study_runs_as_written(cli, succeed):
    written = succeed("study", "new", "mine.yaml")
    assert "actlab study plan mine.yaml" in written.out
    plan = succeed("study", "plan", "mine.yaml")
    assert "12 runs" in plan.out
    assert "then stage compare: 3 grid points at selected settings × 8 seeds" in plan.out
    few = ("model.activation=relu", "model.optimizer.lr=1e-3", "model.network.hidden=[4]")
    run = succeed(
        "study",
        "run",
        "mine.yaml",
        "--smoke",
        *(word for setting in few for word in ("--set", setting)),
    )
    assert "2 of 2 runs finished" in run.out
    text = Path("mine.yaml").read_text()
    assert "exists and is not overwritten" in cli("study", "new", "mine.yaml").rejection
    assert Path("mine.yaml").read_text() == text


@pytest.mark.parametrize("name", names_in(study_new.STUDIES))
def test_a_study_like_one_of_a_paper_has_its_keys(succeed, tmp_path, name):
    path = tmp_path / "mine.yaml"
    succeed("study", "new", path, "--like", name)
    shipped = json.dumps(
        parse((resource(study_new.STUDIES) / f"{name}.yaml").read_text(encoding="utf-8"))
    )
    copy = json.dumps(parse(path.read_text(encoding="utf-8")))
    # Names of configs in place of paths
    assert copy == shipped.replace('"../', '"').replace('.yaml"', '"')
    if name in ("gelu_mnist_classifier", "gpt_gates"):
        assert replace(reading.load(str(path)), name=name) == reading.load(name)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("demo.yaml", "ships with actlab. Use another name"),
        ("mine.txt", "ends in .yaml"),
        ("nowhere/mine.yaml", "the folder nowhere does not exist"),
        ("...yaml", "study name: expected a letter or digit, then letters, digits"),
        ("my study.yaml", "'_' and '-', got 'my study'"),
    ],
)
def test_new_says_what_is_wrong_with_a_path(cli, path, why):
    assert why in cli("study", "new", path).rejection
    assert not Path(path).exists()


# status


def test_status_of_a_study_that_has_not_started(succeed):
    Path("tiny.yaml").write_text(TINY)
    outcome = succeed("study", "status", "tiny.yaml", "--set", "seeds=3")
    assert counts(outcome.out)["all"] | {"waiting": "6", "runs": "6"} == counts(outcome.out)["all"]
    assert outcome.out.endswith("next: `actlab study run tiny.yaml --set seeds=3` trains 6 runs\n")
    assert not Path("runs").exists()


def test_status_counts_each_state_and_changes_nothing(cli, root):
    first, second, third, fourth = folders(root).values()
    unfinish(first, epochs=1)
    unfinish(second, kept=False)
    third.fail("returned float64 for float32")
    (third.path / "result.json").unlink()
    write_json(fourth.path / "result.json", {**fourth.result(), "status": "diverged"})
    with holding(root, [first.run.id, second.run.id]):
        running = cli("study", "status", "tiny.yaml").out
    before = snapshot(root)
    outcome = cli("study", "status", "tiny.yaml")
    assert snapshot(root) == before
    one = {
        "diverged": "1",
        "failed": "1",
        "started": "1",
        "waiting": "1",
        "finished": "0",
        "running": "0",
    }
    assert one.items() <= counts(outcome.out)["all"].items()
    assert "1 run failed: returned float64 for float32\n" in outcome.out
    assert outcome.out.endswith("next: `actlab study run tiny.yaml` trains 3 runs\n")
    assert {"running": "2", "started": "0", "waiting": "0"}.items() <= counts(running)[
        "all"
    ].items()
    assert "next: wait for 2 runs in training" in running
    plan = cli("study", "plan", "tiny.yaml").out
    kinds = [line.split("  ")[0].strip() for line in plan.splitlines()[:4]]
    assert kinds == ["started", "waiting", "failed", "diverged"]


def test_plan_says_that_it_checks_and_what_was_stopped(cli, root, monkeypatch):
    assert "checking the configs" in cli("study", "plan", "tiny.yaml").out

    def stopped(*_):
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr("actlab.checks.configs.check", stopped)
    for command in ("plan", "run"):
        outcome = cli("study", command, "tiny.yaml")
        assert outcome.code == 130
        assert (
            "actlab: stopped; the configs were being checked; nothing was trained or changed"
            in outcome.err
        )


def test_status_names_damaged_results_and_runs_of_other_settings(cli, root):
    (next(iter(folders(root).values())).path / "result.json").write_text("{")
    outcome = cli("study", "status", "tiny.yaml")
    assert counts(outcome.out)["all"]["damaged"] == "1"
    assert "next: delete the folders of damaged runs" in outcome.out
    other = cli("study", "status", "tiny.yaml", "--set", "trainer.max_epochs=1")
    assert "4 finished runs with other settings: trainer.max_epochs was" in other.out


def test_status_of_stages_stores_no_selection(cli, succeed, root):
    write_stages("2", "2-4")
    succeed("study", "run", "tiny.yaml", "--stage", "choose")
    (root / "selection.json").unlink()
    outcome = cli("study", "status", "tiny.yaml")
    assert counts(outcome.out)["choose"]["finished"] == "4"
    assert (
        counts(outcome.out)["compare"] | {"runs": "3", "waiting": "3"}
        == counts(outcome.out)["compare"]
    )
    assert "`actlab study run tiny.yaml` trains 3 runs" in outcome.out
    assert not (root / "selection.json").exists()
    alone = cli("study", "status", "tiny.yaml", "--stage", "choose")
    assert counts(alone.out).keys() == {"choose"}
    assert "all runs have ended" in alone.out


def test_status_of_a_study_that_has_ended_names_the_command_for_what_is_missing(cli, root):
    following = cli("study", "status", "tiny.yaml").out.splitlines()[-1]
    does = (
        "`actlab study run tiny.yaml --report` adds missing probes and costs, and draws the figures"
    )
    assert following == f"next: all runs have ended; {does}"


def test_a_study_whose_other_runs_have_ended_is_done_except_for_failed_runs(cli, root):
    *_, third, fourth = folders(root).values()
    for folder in (third, fourth):
        (folder.path / "result.json").unlink()
        folder.fail("ValueError: boom")
    status = cli("study", "status", "tiny.yaml").out
    assert "2 runs failed: ValueError: boom\n" in status
    assert (
        "ended except 2 runs that failed; `actlab study run tiny.yaml` retries them once you fix"
        in status
    )
    shown = cli("study", "show", "tiny.yaml").out
    done = (
        "2 of 4 runs finished; the study is done except for 2 runs that failed: ValueError: "
        "boom (2 runs)."
    )
    assert done in shown
    third.try_again()
    shown = cli("study", "show", "tiny.yaml").out
    assert (
        "2 of 4 runs finished; 1 run failed: ValueError: boom (1 run); the study is unfinished"
        in shown
    )


def test_status_loads_neither_torch_nor_lightning(root):
    program = Path(__file__).parents[1] / "programs" / "light_status.py"
    done = subprocess.run(
        [sys.executable, program, "tiny.yaml"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded: nothing heavy"


# clean


@pytest.fixture
def clean(succeed):
    """What ``study clean`` prints."""
    return lambda *words: succeed("study", "clean", "tiny.yaml", *words).out


def test_a_finished_study_has_nothing_to_delete(clean, root):
    before = snapshot(root)
    assert clean("--yes") == "nothing to delete\n"
    assert snapshot(root) == before


def test_clean_deletes_what_killed_processes_left(clean, root, programs):
    first = next(iter(folders(root).values()))
    words = [sys.executable, programs / "partial_writer.py", first.path / "metrics.parquet"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        writer.stdout.readline()
        writer.kill()
    (half,) = first.path.glob(".*.partial")
    half.write_bytes(bytes(5_000))
    hours_ago = time.time() - 2 * 3600
    os.utime(half, (hours_ago, hours_ago))
    state = root / "stacks" / "0123abcd"
    state.mkdir(parents=True)
    (state / "last.ckpt").write_bytes(bytes(1_000_000))
    with temporary(root, "table.json") as written:
        listed = clean()
        assert f"1.0 MB  {state}\n" in listed
        assert f"5.0 kB  {half}\n" in listed
        assert "`actlab study clean tiny.yaml --yes` deletes 2 items, 1.0 MB" in listed
        assert half.exists()
        assert state.exists()
        assert "deleted 2 items" in clean("--yes")
        assert written.exists()
    assert not half.exists()
    assert not state.exists()
    assert all(folder.finished for folder in folders(root).values())


def test_the_state_of_an_unfinished_stack_is_kept(clean, root):
    whole = Job(tuple(study().runs()), stacked=True)
    stacks.begin(whole.folder(root), whole.names)
    state = whole.checkpoint(root)
    state.touch()
    assert f"stacks/{whole.id}" in clean()
    unfinish(folders(root)[whole.runs[0].id], epochs=1, kept=False)
    assert clean("--yes") == "nothing to delete\n"
    assert state.exists()


def test_runs_outside_the_plan_are_listed_and_deleted_unless_they_are_trained(cli, clean, root):
    inside = folders(root, "seeds=1")
    listed = clean("--seeds", "1")
    assert all((name in listed) == (name not in inside) for name in folders(root))
    assert "2 finished runs among them" in listed
    assert len(list(root.glob("*/result.json"))) == 4
    (root / "notes").mkdir()  # not a run
    with holding(root, folders(root).keys() - inside.keys()):
        assert (
            "another process trains"
            in cli("study", "clean", "tiny.yaml", "--seeds", "1", "--yes").err
        )
    assert "deleted 2 items" in clean("--seeds", "1", "--yes")
    assert {path.parent.name for path in root.glob("*/result.json")} == inside.keys()
    assert (root / "notes").is_dir()
    assert not list(root.glob(".*.partial"))


def test_failed_runs_of_the_plan_are_kept(clean, root):
    folder = next(iter(folders(root).values()))
    unfinish(folder, epochs=1)
    folder.fail("no memory")
    assert clean("--yes") == "nothing to delete\n"


def test_a_whole_study_is_deleted_where_asked_for(clean, root):
    assert all(name in clean("--all") for name in folders(root))
    assert "4 finished runs among them" in clean("--all", "--yes")
    assert not root.exists()
    assert root.parent.exists()


def test_runs_of_forgotten_options_or_an_unopened_stage_are_kept(clean, root):
    kept = (
        "4 runs will stay, because no run in runs/tiny belongs to this plan, or one of its stages "
        "has not opened"
    )
    assert kept in clean("--set", "data.batch_size=100", "--yes")
    write_stages("9", "[9]")
    assert kept in clean("--yes")
    assert len(list(root.glob("*/result.json"))) == 4


def test_the_help_of_actlab_begins_with_what_it_is(cli):
    first, _, usage = cli("--help").out.partition("\n\n")
    assert first == "Compare activation functions with repeated seeds and statistical tests."
    assert usage.startswith("usage: actlab COMMAND …")


def test_the_help_of_a_run_groups_its_options(cli):
    page = cli("study", "run", "--help").out
    groups = re.split(r"^([a-z ]+):\n", page, flags=re.M)
    texts = dict(zip(groups[1::2], groups[2::2], strict=True))
    names = {title: re.findall(r"^ +(--[a-z-]+)", text, re.M) for title, text in texts.items()}
    assert names["what to compare"] == [
        "--smoke",
        "--set",
        "--activation",
        "--reference",
        "--seeds",
        "--stage",
    ]
    assert names["training"] == ["--jobs", "--graphs", "--max-stack"]
    assert names["several machines"] == ["--wait", "--cluster", "--cpus", "--gpus", "--shard"]
    assert names["output"] == ["--runs-dir", "--report", "--html", "--logger", "--verbose"]
