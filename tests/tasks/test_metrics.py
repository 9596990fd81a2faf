"""Metrics of torchmetrics in a config: alone, stacked, in a study, with padding, over batches."""

import json
import math
import sys
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import yaml
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassF1Score
from torchmetrics.image import PeakSignalNoiseRatio
from torchmetrics.regression import MeanSquaredError

import wandb_logs
from actlab.config.metric_classes import directions
from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.optim import Plateau
from actlab.stacking import StackedTask
from actlab.tasks import AutoencoderTask, ClassificationTask
from toys import Frames, FrameTask, K, PlainFrameTask, fitted

QUIET: dict[str, Any] = dict.fromkeys(
    ("logger", "enable_progress_bar", "enable_model_summary"), False
)
TEN = {"task": "multiclass", "num_classes": 10}
F1 = {"class_path": "torchmetrics.F1Score", "init_args": {**TEN, "average": "macro"}}
CONFUSION = {"class_path": "torchmetrics.ConfusionMatrix", "init_args": TEN}
BASE = """\
seed_everything: 1
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    activation: elu
    network: {class_path: actlab.networks.MLP, init_args: {hidden: [16]}}
    optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.01}}
    metrics:
      f1:
        class_path: torchmetrics.F1Score
        init_args: {task: multiclass, num_classes: 10, average: macro}
      confusion:
        class_path: torchmetrics.ConfusionMatrix
        init_args: {task: multiclass, num_classes: 10}
data: {class_path: actlab.datamodules.MNISTDataModule, init_args: {sample: true, batch_size: 100}}
trainer:
  max_epochs: 2
  limit_train_batches: 10
  logger: false
  enable_progress_bar: false
  enable_model_summary: false
  callbacks: [{class_path: actlab.callbacks.TestEveryEpoch}]
"""
STUDY = """\
base: base.yaml
grid: {model.activation: [elu, relu], model.optimizer.lr: [0.01, 0.001]}
seeds: 2
select: {tune: model.optimizer.lr, metric: val/f1}
table: [{metric: test/f1, at: best val/f1}, {metric: test/error}]
figures: [{name: f1, panels: [{y: {val/f1: null}}]}]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def macro_f1(predictions, labels, classes=10):
    """The mean over classes of 2·TP ÷ (2·TP + FP + FN)."""
    hits = torch.tensor(
        [((predictions == k) & (labels == k)).sum() for k in range(classes)], dtype=torch.float64
    )
    sizes = torch.tensor([(predictions == k).sum() + (labels == k).sum() for k in range(classes)])
    return (2 * hits / sizes.clamp_min(1))[sizes > 0].mean().item()


def counts(predictions, labels, classes):
    return torch.bincount(labels * classes + predictions, minlength=classes**2).view(
        classes, classes
    )


def files(tmp_path, study=STUDY, base=BASE):
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "mine.yaml").write_text(study)


def all_of(loader):
    batches = list(loader)
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def test_a_fit_logs_numbers_and_keeps_matrices_of_every_batch_of_an_epoch(cli, tmp_path):
    files(tmp_path)
    words = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "log"]
    assert cli("fit", "-c", "base.yaml", *words).code == 0
    (path,) = tmp_path.glob("runs/base/*/checkpoints/*.ckpt")
    (log,) = tmp_path.glob("log/**/metrics.csv")
    logged = pd.read_csv(log)
    task = ClassificationTask.load_from_checkpoint(path).eval()
    _, _, data = build(config_with())
    data.prepare_data()
    data.setup("test")
    found = json.loads((path.parents[1] / "matrices.json").read_text())
    for split, loader in (("val", data.val_dataloader()), ("test", data.test_dataloader())):
        x, y = all_of(loader)
        guessed = task(x).argmax(-1)
        assert len(logged[f"{split}/f1"].dropna()) == 2
        assert logged[f"{split}/f1"].dropna().iloc[-1] == pytest.approx(
            macro_f1(guessed, y), abs=1e-6
        )
        assert torch.equal(torch.tensor(found[f"{split}/confusion"]), counts(guessed, y, 10))
    assert not [name for name in logged if "confusion" in name]
    assert "test/f1" in cli("test", "--ckpt_path", path).succeeded()


def test_a_study_selects_shows_and_draws_a_metric_and_lists_its_matrices(cli, tmp_path):
    files(tmp_path)
    cli("study", "run", "mine.yaml").succeeded()
    assert cli("study", "report", "mine.yaml").code == 0
    root = tmp_path / "runs/mine"
    results = [json.loads(path.read_text()) for path in sorted(root.glob("*/result.json"))]
    assert {result["engine"] for result in results} == {"stacked"}
    assert all((root / result["id"] / "matrices.json").exists() for result in results)
    best: dict[str, dict[float, list[float]]] = {}
    for result in results:
        rows = pd.read_parquet(root / result["id"] / "metrics.parquet")
        assert not rows["metric"].str.contains("confusion").any()
        values = rows[(rows["split"] == "val") & (rows["metric"] == "f1")]["value"]
        assert len(values) == 2
        key = tuple(result["point"].values())
        best.setdefault(key[0], {}).setdefault(key[1], []).append(values.max())
        matrix = torch.tensor(
            json.loads((root / result["id"] / "matrices.json").read_text())["test/confusion"]
        )
        assert 1 - matrix.trace() / matrix.sum() == pytest.approx(
            result["summary"]["test/error"][""]["last"]
        )
    table = json.loads((root / "table.json").read_text())
    for row in table["rows"]:
        assert (row["columns"][0]["metric"], row["columns"][0]["mode"]) == ("test/f1", "max")
        medians = {
            lr: pd.Series(found).median()
            for lr, found in best[row["point"]["model.activation"]].items()
        }
        assert medians[row["chosen"]["model.optimizer.lr"]] == max(medians.values())


def test_a_plan_knows_which_metrics_are_numbers_and_what_is_better(cli, tmp_path):
    for column, expected in (
        ({"metric": "val/confusion"}, "unknown metric 'val/confusion'"),
        ({"metric": "val/f2"}, "did you mean 'val/f1'"),
        (
            {"metric": "val/pearson"},
            "val/pearson does not say whether low or high values are better. Set",
        ),
        ({"metric": "val/pearson", "mode": "max"}, None),
        (
            {"metric": "test/error", "at": "best val/pearson"},
            "val/pearson does not say whether low or high",
        ),
    ):
        pearson = "      pearson: {class_path: torchmetrics.PearsonCorrCoef}\n"
        files(
            tmp_path,
            STUDY.partition("table")[0] + f"table: [{column}]\n",
            BASE.replace("data:", pearson + "data:"),
        )
        outcome = cli("study", "plan", "mine.yaml")
        assert outcome.code == (0 if expected is None else 2)
        assert expected is None or (expected in outcome.err and outcome.err.count("\n") == 1), (
            outcome.err
        )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "from torchmetrics import MeanMetric\nclass Mine(MeanMetric):\n    pass\n",
            "val/mine does not say whether low or high values are better. "
            "Set 'mode: min' or 'mode: max'",
        ),
        ("raise RuntimeError('no')\n", "own_metric.Mine cannot be imported: RuntimeError: no"),
    ],
    ids=["without a direction", "raises"],
)
def test_a_class_of_ones_own_is_asked_for_its_direction(cli, tmp_path, monkeypatch, code, expected):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_metric", raising=False)
    (tmp_path / "own_metric.py").write_text(code)
    own = "      mine: {class_path: own_metric.Mine}\n"
    files(tmp_path, STUDY.replace("val/f1", "val/mine"), BASE.replace("data:", own + "data:"))
    outcome = cli("study", "plan", "mine.yaml")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert expected in outcome.err


WRONG = [
    ({"task": "multiclass"}, "model.metrics.f1: ValueError: `num_classes` is expected to be `int`"),
    (
        {"task": "multiclass", "num_classes": 1},
        "`num_classes` to be an integer larger than 1, but got 1",
    ),
    ({"task": "multiclass", "num_classes": "x"}, "model.metrics.f1.num_classes: expected"),
    ({"task": "multiclass", "num_clases": 10}, "did you mean 'model.metrics.f1.num_classes'"),
    ({"task": "multiclas", "num_classes": 10}, "model.metrics.f1.task: expected"),
    ({}, "torchmetrics.F1Score requires 'task'. Set model.metrics.f1.task"),
]


def test_what_a_metric_does_not_accept_is_one_line_in_a_fit_and_a_plan(cli, tmp_path):
    for arguments, expected in WRONG:
        files(tmp_path, base=yaml.safe_dump(config_with(f1={**F1, "init_args": arguments})))
        for words in (["fit", "-c", "base.yaml"], ["study", "plan", "mine.yaml"]):
            outcome = cli(*words)
            assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
            assert expected in outcome.err


def test_a_metric_of_other_classes_or_a_taken_name_is_rejected():
    with pytest.raises(
        ActlabError, match=r"metrics\.f1\.num_classes: expected 10, as in the task, got 4"
    ):
        ClassificationTask(10, (4,), metrics={"f1": MulticlassF1Score(4)})
    for name in ("error", "a/b", ""):
        with pytest.raises(ActlabError, match=rf"model\.metrics: expected names .*, got '{name}'"):
            ClassificationTask(10, (4,), metrics={name: MulticlassF1Score(10)})


def test_what_a_metric_rejects_is_one_line(tmp_path):
    task, trainer, data = experiment(
        tmp_path, f1=F1, mse={"class_path": "torchmetrics.MeanSquaredError"}
    )
    with pytest.raises(ActlabError, match=r"model\.metrics\.mse: expected .* got \(.*, 10\) and"):
        trainer.fit(task, datamodule=data)


@pytest.mark.parametrize(
    ("kind", "sanity"), [("AUROC", 0), ("AveragePrecision", 2), ("F1Score", 0)]
)
def test_a_metric_of_one_output_for_a_task_of_two_is_one_line_before_training(
    cli, program, tmp_path, monkeypatch, kind, sanity
):
    program("two_classes")
    monkeypatch.syspath_prepend(tmp_path)
    binary = {"class_path": f"torchmetrics.{kind}", "init_args": {"task": "binary"}}
    base = config_with(area=binary)
    base["data"] = {"class_path": "two_classes.Points"}
    base["trainer"]["num_sanity_val_steps"] = sanity
    files(
        tmp_path,
        "base: base.yaml\ngrid: {model.activation: [elu]}\nseeds: 1\n",
        yaml.safe_dump(base),
    )

    outcome = cli("fit", "-c", "base.yaml")
    (line,) = [line for line in outcome.err.splitlines() if "error" in line]
    assert outcome.code == 2
    assert line.startswith("actlab: error: model.metrics.area: expected ")
    assert line.endswith(
        ". Use a metric for the outputs of the task; for two classes, set task: multiclass and "
        "num_classes: 2."
    )
    assert "Traceback" not in outcome.err
    assert not [*tmp_path.glob("runs/**/*.ckpt")]

    outcome = cli("study", "run", "mine.yaml", "--jobs", "0")
    assert outcome.code == 1
    assert "model.metrics.area: expected " in outcome.out
    assert "Traceback" not in outcome.out + outcome.err
    assert not [*tmp_path.glob("runs/mine/**/*.ckpt")]


def experiment(folder, **metrics):
    trainer, task, data = build(config_with(**metrics), default_root_dir=str(folder))
    return task, trainer, data


def config_with(**metrics):
    config = yaml.safe_load(BASE)
    config["model"]["init_args"]["metrics"] = metrics
    return config


def frame_metrics():
    return {"f1": MulticlassF1Score(K, average="macro"), "confusion": MulticlassConfusionMatrix(K)}


@pytest.mark.parametrize("kind", [FrameTask, PlainFrameTask])
@pytest.mark.parametrize("runs", [1, 3])
def test_padding_is_left_out_and_each_member_of_a_stack_has_its_own(tmp_path, kind, runs):
    given = frame_metrics()
    members = [kind(seed, metrics=given) for seed in range(runs)]
    task = StackedTask(members) if runs > 1 else members[0]
    data = Frames(seed=[*range(runs)] if runs > 1 else 0)
    trainer = fitted(task, data, tmp_path, max_epochs=2)
    x, labels, mask = data.val.tensors
    for r, member in enumerate(task.apart() if runs > 1 else members):
        guessed = member.double().eval()(x).argmax(-1)[mask > 0]
        expected = macro_f1(guessed, labels[mask > 0], K)
        found = task.latest["val/f1"][r] if runs > 1 else trainer.callback_metrics["val/f1"]
        assert float(found) == pytest.approx(expected, abs=1e-6)
        assert torch.equal(
            torch.tensor(task.matrices["val/confusion"][r]), counts(guessed, labels[mask > 0], K)
        )
    assert not any(metric.update_called for metric in given.values())


def test_an_autoencoder_compares_images(tmp_path):
    task = AutoencoderTask(
        (1, 28, 28), metrics={"mse": MeanSquaredError(), "psnr": PeakSignalNoiseRatio(1.0)}
    )
    _, _, data = build(config_with())
    trainer = pl.Trainer(**QUIET, default_root_dir=tmp_path)
    (found,) = trainer.validate(task, datamodule=data, verbose=False)
    assert found["val/mse"] == pytest.approx(found["val/loss"], rel=1e-5)
    assert found["val/psnr"] == pytest.approx(-10 * math.log10(found["val/loss"]), rel=1e-4)


def test_a_sanity_check_and_an_earlier_evaluation_count_for_nothing(tmp_path):
    config = config_with(f1=F1, confusion=CONFUSION)
    found = []
    for sanity in (0, 2):
        config["trainer"]["num_sanity_val_steps"] = sanity
        trainer, task, data = build(config, default_root_dir=str(tmp_path))
        if sanity:
            trainer.validate(task, datamodule=data, verbose=False)
        trainer.fit(task, datamodule=data)
        found.append((trainer.callback_metrics["val/f1"], task.matrices))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert found[0][1].keys() == {"val/confusion", "test/confusion"}


def test_a_schedule_may_watch_a_number_and_not_a_matrix():
    given = {"f1": MulticlassF1Score(10), "confusion": MulticlassConfusionMatrix(10)}
    task = ClassificationTask(
        10, (4,), metrics=given, schedules={"lr": Plateau("val/f1", mode="max")}
    )
    assert task.schedules
    with pytest.raises(ActlabError, match="unknown metric of a plateau schedule 'val/confusion'"):
        ClassificationTask(10, (4,), metrics=given, schedules={"lr": Plateau("val/confusion")})


def test_metrics_change_no_other_number_and_no_id_of_runs_without_them(tmp_path):
    states = []
    for given in ({}, {"f1": F1, "confusion": CONFUSION}):
        task, trainer, data = experiment(tmp_path, **given)
        trainer.fit(task, datamodule=data)
        logged = {k: v for k, v in trainer.callback_metrics.items() if not k.endswith("f1")}
        states.append({**task.state_dict(), **logged})
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_checkpoint_restores_the_metrics(tmp_path):
    task, trainer, data = experiment(tmp_path, f1=F1, confusion=CONFUSION)
    (expected,) = trainer.test(task, datamodule=data, verbose=False)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loaded = ClassificationTask.load_from_checkpoint(tmp_path / "a.ckpt")
    assert [type(metric) for metric in loaded.metrics.templates.values()] == [
        MulticlassF1Score,
        MulticlassConfusionMatrix,
    ]
    (found,) = build(config_with()).trainer.test(loaded, datamodule=data, verbose=False)
    assert found == expected
    assert loaded.matrices == task.matrices


def test_directions_are_those_of_the_built_class():
    assert directions([config_with(f1=F1, confusion=CONFUSION)]) == {"f1": "max"}
    mse = {"class_path": "torchmetrics.MeanSquaredError"}
    assert directions([config_with(a=mse), config_with(a=F1, b=mse)]) == {"a": "", "b": "min"}


def test_a_matrix_is_a_table_of_wandb_and_the_best_f1_the_highest(cli, tmp_path):
    files(tmp_path)
    assert (
        cli("fit", "-c", "base.yaml", "--trainer.logger", "actlab.reports.wandb.RunLogger").code
        == 0
    )
    study = [
        "study",
        "run",
        "mine.yaml",
        "--set",
        "model.activation=elu",
        "--set",
        "model.optimizer.lr=0.01",
    ]
    study += ["--set", "seeds=2"]  # in a stack
    assert cli(*study, "--logger", "wandb").code == 0
    logs = [*tmp_path.glob("runs/base/**/*.wandb"), *tmp_path.glob("runs/mine/**/*.wandb")]
    assert len(logs) == 3
    for log in logs:
        steps = wandb_logs.history(log.parent)
        sides = [
            tuple(step.get(f"val/confusion/{side}") for side in ("nrows", "ncols"))
            for step in steps
        ]
        assert [size for size in sides if size != (None, None)] == [(10, 10)] * 2
        values = [step["val/f1"] for step in steps if "val/f1" in step]
        assert wandb_logs.summary(log)["best/val/f1"] == max(values)


class Keep(pl.Callback):
    """Write the metrics and shares of the matrix to a file, as forks return no task."""

    def __init__(self, path):
        self.path = path

    def on_validation_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            matrix = torch.tensor(pl_module.matrices["val/confusion"][0], dtype=torch.float64)
            kept = {
                name: float(trainer.callback_metrics[name])
                for name in ("val/f1", "val/auroc", "val/loss")
            }
            self.path.write_text(
                json.dumps([*kept.values(), *(matrix / matrix.sum()).flatten().tolist()])
            )


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_two_devices_that_train_have_the_metrics_of_all_samples(tmp_path):
    """With progress bar and logger, at rate 0; in forks of this process, which share imports."""
    torch.set_num_threads(1)
    given = {"f1": F1, "confusion": CONFUSION, "auroc": {**F1, "class_path": "torchmetrics.AUROC"}}
    found = []
    for devices, strategy in ((1, "auto"), (2, "ddp_fork")):
        config, path = config_with(**given), tmp_path / f"{devices}.json"
        config["trainer"] |= {
            "devices": devices,
            "strategy": strategy,
            "accelerator": "cpu",
            "callbacks": [],
        }
        logger = {"class_path": "CSVLogger", "init_args": {"save_dir": str(tmp_path)}}
        config["trainer"] |= {"logger": logger, "enable_progress_bar": True}
        config["trainer"] |= {"max_epochs": 1, "limit_train_batches": 2, "num_sanity_val_steps": 0}
        config["model"]["init_args"]["optimizer"]["init_args"]["lr"] = 0.0
        config["data"]["init_args"]["eval_batch_size"] = (
            333  # parts of unequal size, the last one of no sample
        )
        trainer, task, data = build(config)
        trainer.callbacks.append(Keep(path))  # type: ignore[attr-defined]
        trainer.validate(task, datamodule=data, verbose=False)
        found.append(json.loads(path.read_text()))
    assert found[1] == pytest.approx(found[0])
