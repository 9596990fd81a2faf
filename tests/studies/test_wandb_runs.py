"""What W&B gets of a study's runs: offline logs of runs alone and in a stack, read back."""

import json
import re
import sys

import pandas as pd
import pytest

import wandb_logs
from actlab.reports import workspaces
from actlab.reports.wandb import RunLogger
from actlab.storage.resources import resource
from actlab.studies import reading
from tiny_study import untried

STUDIES = sorted(resource("configs/studies").glob("*.yaml"))
STUDY = """\
title: Two units
tags: [a paper, digits]
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 2
  trainer.limit_train_batches: 2
  model.network.hidden: [8]
grid:
  model.activation: [{name: elu, alpha: 0.5}]
  model.optimizer.lr: [1.0e-2]
seeds: 2
table: [{metric: test/error, at: last, percent: true}]
figures: [{name: curves}]
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The folder of a study whose runs were logged."""
    from actlab.__main__ import main

    folder = tmp_path_factory.mktemp("logged")
    (folder / "two.yaml").write_text(STUDY)
    words = ["--logger", "wandb", "--report", "--jobs", "0"]
    with untried():
        main(["study", "run", str(folder / "two.yaml"), "--runs-dir", str(folder / "runs"), *words])
    return folder / "runs/two"


def test_every_run_has_a_log_of_its_own(logged):
    logs = list(logged.glob("wandb/offline-run-*/*.wandb"))
    runs = [log for log in logs if wandb_logs.header(log).job_type == "run"]
    assert len(runs) == 2
    seen = set()
    for log in runs:
        head, config, summary = (
            wandb_logs.header(log),
            wandb_logs.config(log),
            wandb_logs.summary(log),
        )
        assert (head.run_group, head.job_type, head.project) == ("two", "run", "actlab")
        unit = config["activation"]
        assert list(head.tags) == ["a paper", "digits", unit]
        assert (config["lr"], config["dropout"]) == (0.01, 0.0)
        assert config["setting"].startswith(f"activation {unit}")
        assert config["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.01
        assert unit == "elu(alpha=0.5)"
        seen.add(config["seed"])
        rows = pd.read_parquet(logged / head.display_name / "metrics.parquet")
        steps = [
            wandb_logs.items(r.history.item)
            for r in wandb_logs.log_records(log)
            if r.HasField("history")
        ]
        for (split, metric), values in rows.groupby(["split", "metric"])["value"]:
            name = f"{split}/{metric}"
            kept = values.to_list()
            assert [row[name] for row in steps if name in row] == pytest.approx(kept)
            assert summary[f"last/{name}"] == pytest.approx(kept[-1])
            best = max(kept) if metric == "accuracy" else min(kept)
            assert summary[f"best/{name}"] == pytest.approx(best)
        assert "best/epoch" not in summary
    assert seen == {0, 1}


def test_the_table_and_the_figures_are_a_run_of_the_group(logged):
    logs = list(logged.glob("wandb/offline-run-*/*.wandb"))
    (log,) = [log for log in logs if wandb_logs.header(log).job_type == "report"]
    assert wandb_logs.header(log).run_group == "two"
    (step,) = [
        wandb_logs.items(r.history.item)
        for r in wandb_logs.log_records(log)
        if r.HasField("history")
    ]
    kinds = {
        key.removesuffix("/_type"): value for key, value in step.items() if key.endswith("/_type")
    }
    assert kinds == {
        "table": "table-file",
        "figures/curves": "image-file",
        "figures/units": "image-file",
    }
    media = [path.relative_to(log.parent).as_posix() for path in log.parent.rglob("media/**/*.*")]
    assert len(media) == 3


def test_a_lost_connection_keeps_the_run_offline(tmp_path, monkeypatch):
    """Nobody listens at the port; a refused key ends the same way."""
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr("actlab.reports.wandb.PATIENCE", 2.0)
    logger = RunLogger(name="lonely", save_dir=str(tmp_path), offline=False)
    logger.log_metrics({"val/loss": 0.5}, 1)
    logger.finalize("success")
    (row,) = wandb_logs.history(next(tmp_path.glob("wandb/offline-run-*")))
    assert row["val/loss"] == 0.5


def test_without_an_account_the_command_says_what_it_would_create(
    logged, cli, succeed, monkeypatch
):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    outcome = succeed(
        "study",
        "wandb",
        logged.parents[1] / "two.yaml",
        "--entity",
        "me",
        "--runs-dir",
        logged.parent,
    )
    assert "'Two units' in me/actlab, over the runs of the group 'two'" in outcome.out
    assert "val/loss, test/error" in outcome.out
    assert "Nothing was created" in outcome.out
    assert f"wandb sync {logged}/wandb/offline-run-*" in outcome.out
    nowhere = cli("study", "wandb", "demo", "--runs-dir", logged / "none").out
    assert "wandb sync" not in nowhere


def test_without_the_extra_the_command_names_it(cli, monkeypatch, tmp_path):
    monkeypatch.delattr("actlab.reports.workspaces")
    monkeypatch.delitem(sys.modules, "actlab.reports.workspaces")
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb_workspaces"]:
        monkeypatch.setitem(sys.modules, name, None)
    outcome = cli("study", "wandb", "demo", "--runs-dir", tmp_path)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "wandb-workspaces, which is not installed" in outcome.err
    assert "pip install 'actlab[workspaces]'" in outcome.err


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_workspace_and_report_are_what_their_library_builds(path, monkeypatch):
    """Every study's specs; only the number of the project would be asked for on the network."""
    monkeypatch.setattr("wandb_workspaces.reports.v2.interface._get_api", lambda: None)
    monkeypatch.setattr(
        "wandb_workspaces.reports.v2.interface.execute_graphql",
        lambda *_, **__: {"project": {"internalId": "p1"}},
    )
    study = reading.load(str(path))
    shown = workspaces.workspace(study, "me", "actlab")._to_model().model_dump(by_alias=True)
    sections = shown["spec"]["section"]["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == [
        "Curves",
        "Final and best values",
        "Settings",
        "Runs",
    ]
    metrics = workspaces.metrics_of(study)
    assert [panel["config"]["metrics"] for panel in sections[0]["panels"]] == [[m] for m in metrics]
    assert {panel["config"]["groupBy"] for panel in sections[0]["panels"]} == {"setting.value"}
    (runs,) = shown["spec"]["section"]["runSets"]
    assert [entry["value"] for entry in runs["filters"]["filters"]] == [
        study.name,
        list(study.seeds),
    ]
    assert study.select.metric in metrics
    written = workspaces.report(study, "| unit |\n|---|\n| elu |", "me", "actlab")._to_model()
    assert written.display_name == study.title
    assert study.name in written.model_dump_json()
    groups = re.findall(r'"grouping":(\[.+?\])', written.model_dump_json())
    assert {(key["section"], key["name"]) for group in groups for key in json.loads(group)} == {
        ("config", "setting.value")
    }
