"""Damaged folders of finished and killed studies: the same numbers or one line, no traceback."""

import json
import random
import shutil
from functools import partial
from typing import Any

import pandas as pd
import pytest

from actlab.engines import progress
from actlab.runtime.signals import Stopped
from actlab.studies import reading
from actlab.studies.locks import holding
from actlab.studies.run_folder import RunFolder
from fuzzing import FINISHED, WAYS, damage, listed, mistake, tried

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600, method="thread")]

KILLED = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 3
  trainer.limit_train_batches: 4
  model.network.hidden: [8]
grid: {model.activation: [relu, elu]}
seeds: 2
table: [{metric: test/error, at: last}]
"""
OTHER = {"limit_train_batches: 4": "limit_train_batches: 5"}  # equal shapes, other numbers


def other(text):
    for one, another in OTHER.items():
        text = text.replace(one, another)
    return text


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda command, *words: cli("study", command, "mine.yaml", *words)


def files_of(root):
    """The files of a study by kind: two of each, of different runs where runs have them."""
    found: dict[Any, Any] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and "figures" not in path.parts:
            parts = path.relative_to(root).parts
            kind = "/".join(parts[1:]) if len(parts) > 1 else parts[0]
            kind = (
                parts[0]
                if parts[0] == ".locks"
                else f"{parts[0]}/stack.ckpt"
                if parts[0] == "stacks"
                else kind
            )
            found.setdefault(kind, []).append(path)
    return {kind: (paths[0], paths[-1]) for kind, paths in found.items()}


def numbers(table):
    """The values in a table by row, column and seed, with what the costs are."""
    found: dict[Any, Any] = {}
    for row in table["rows"]:
        point = json.dumps([row["point"], row["chosen"]], sort_keys=True)
        for column in row["columns"]:
            for seed, value in column["values"].items():
                found[point, column["metric"], seed] = value
        if row["cost"] is not None:
            found[point, "cost", ""] = row["cost"]["seconds_per_update"]
    return found


def differing(found, before, tolerance):
    """A number that is not the one before; new costs are."""
    for key, value in found.items():
        if key not in before or abs(value - before[key]) > tolerance * max(1e-3, abs(before[key])):
            return f"{key} is {value}, was {before.get(key)}"
    return ""


def copies(whole, folder, seed):
    """Damaged copies of a study: the folder, the file that was damaged, and how."""
    for kind, (file, another) in files_of(whole / "runs/mine").items():
        for number, way in enumerate(WAYS):
            source = random.Random(f"{seed}{kind}{way}{number}")
            root = folder / "runs"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(whole / "runs", root, symlinks=True)
            first, second = (root / path.relative_to(whole / "runs") for path in (file, another))
            if source.random() < 0.5:
                first, second = second, first
            relative = first.relative_to(root)
            foreign = whole / "other" / relative
            if not foreign.exists():
                foreign = files_of(whole / "other/mine").get(kind, (second,))[0]
            damage(first, way, source, second if second != first else foreign, foreign)
            yield (kind, number, way), first


def is_named(file, outcome, root):
    """Whether what was printed names the damaged file, or its run or stack."""
    text = outcome.out + outcome.err
    parts = file.relative_to(root / "runs/mine").parts
    told = "damaged" in text or "delete" in text.lower() or str(file.relative_to(root)) in text
    return parts[0] in text and told if len(parts) > 1 else file.name in text


def test_damaged_folders_of_a_finished_study(study, tmp_path):
    """Every kind of file with every damage: 250 or more, each shown, planned, reported and run."""
    whole = tmp_path / "whole"
    for text, name in ((other(FINISHED), "other"), (FINISHED, "runs")):
        (tmp_path / "mine.yaml").write_text(text)
        outcome = study(
            "run", "--runs-dir", whole / name, "--logger", "pytorch_lightning.loggers.CSVLogger"
        )
        assert outcome.code == 0, outcome.err
        assert study("report", "--runs-dir", whole / name).code == 0
    before = numbers(json.loads((whole / "runs/mine/table.json").read_text()))
    assert len(before) == 4 * 3 + 2
    faults = {}
    for case, file in copies(whole, tmp_path, "finished"):
        faults[case] = fault_of(study, tmp_path, file, before)
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= 250, len(faults)


def fault_of(study, folder, file, before):
    """What is wrong with what the commands make of a damaged study."""
    gone = not file.exists()
    for number, command in enumerate(("show", "plan", "report", "run", "report")):
        outcome, fault = tried(partial(study, command))
        if fault := fault or mistake(outcome):
            return f"{command}: {fault}"
        if outcome.code == 2 and not is_named(file, outcome, folder):
            return f"{command}: the line does not name the file: {outcome.err[:200]}"
        if command == "report" and outcome.code == 0:
            found = numbers(json.loads((folder / "runs/mine/table.json").read_text()))
            shown = study("show")
            if wrong := differing({k: v for k, v in found.items() if k[1] != "cost"}, before, 0.02):
                return f"{command}: {wrong}"
            costs = {k: v for k, v in found.items() if k[1] == "cost"}
            if number < 3 and not costs.items() <= before.items():
                return f"{command}: other costs"
            lacking = (
                before.keys()
                - found.keys()
                - ({k for k in before if k[1] == "cost"} if gone else set())
            )
            if (
                lacking
                and not is_named(file, shown, folder)
                and "runs finished; the study is unf" not in shown.out
            ):
                return f"{command}: {min(lacking)} is missing without a word"
    return ""


@pytest.fixture
def killed(study, tmp_path, monkeypatch):
    """Makes a study whose two jobs were killed in epoch two, in a folder next to a whole one."""

    def kill_in_the_middle(text, folder, *words):
        (tmp_path / "mine.yaml").write_text(text)
        assert study("run", "--runs-dir", folder / "straight", *words).code == 0
        calls = iter(list[int]())

        def stop(self, run, fraction):
            if 0 < fraction < 1 and next(calls, None) is None:
                raise Stopped(15)

        root, runs = folder / "runs" / "mine", reading.load("mine.yaml").runs()
        with monkeypatch.context() as patch:
            patch.setattr(progress.Display, "update", stop)
            # The second start finds the first job's runs held by another
            for first in (
                False,
                True,
            ):
                begun = [run.id for run in runs if (root / run.id).exists()] if first else []
                calls = iter([0, 1, 2])
                with holding(root, begun):
                    assert study("run", "--runs-dir", folder / "runs", *words).code == 128 + 15
        return runs

    return kill_in_the_middle


def test_damaged_folders_of_a_killed_study(study, killed, tmp_path):
    """Every kind of file with every damage: 150 or more; each run ends as it would, or is told."""
    logger = ("--logger", "pytorch_lightning.loggers.CSVLogger")
    killed(other(KILLED), tmp_path / "foreign", *logger)
    runs = killed(KILLED, tmp_path / "whole", *logger)
    (tmp_path / "foreign/runs").rename(tmp_path / "whole/other")
    faults = {}
    for case, file in copies(tmp_path / "whole", tmp_path, "killed"):
        outcome, fault = tried(lambda: study("run", *logger))
        if outcome and outcome.code == 1:  # a run has failed
            outcome = outcome._replace(code=0)
        fault = fault or mistake(outcome)
        told = not fault and is_named(file, outcome, tmp_path)
        if not fault and outcome.code == 2 and not told:
            fault = f"the line does not name the file: {outcome.err[:200]}"
        for run in runs if not fault and outcome.code == 0 else ():
            one, straight = (
                RunFolder(root / "mine", run)
                for root in (tmp_path / "runs", tmp_path / "whole/straight")
            )
            if not one.finished:
                fault = fault or (
                    ""
                    if one.state.reason and told
                    else f"{run.id} has not finished: {outcome.out[-300:]}"
                )
            else:
                found, wanted = (
                    pd.read_parquet(f.path / "metrics.parquet") for f in (one, straight)
                )
                if (
                    len(found) != len(wanted)
                    or (found["value"] - wanted["value"]).abs().max() > 1e-4
                ):
                    fault = fault or f"{run.id} has other rows"
        faults[case] = fault
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= 150
