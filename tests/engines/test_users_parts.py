"""Optimisers, callbacks, data and modules of users: records and measurements are the run's own."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from actlab import experiments
from actlab.analysis import results
from actlab.engines import evaluation, packing
from actlab.errors import ActlabError
from actlab.stacking import StackedTask
from actlab.storage import contents
from actlab.studies import reading
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder
from tiny_study import KilledError, execute, kill_after, metrics, result
from tolerances import EXACT, ROUNDED

pytestmark = pytest.mark.tries_stacks

TINY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 2
  trainer.limit_train_batches: 2
  trainer.val_check_interval: 1.0
  model.network.hidden: [16]
"""
OWN = """\
seed_everything: 0
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    activation: relu
    network: {class_path: actlab.networks.MLP, init_args: {hidden: [8]}}
    optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.1}}
data: {class_path: parts_of_users.SplitBySeed}
trainer:
  max_epochs: 4
  num_sanity_val_steps: 0
  callbacks: [{class_path: actlab.callbacks.TestEveryEpoch}]
"""


@pytest.fixture
def load(program, tmp_path, monkeypatch):
    """Reads a study; ``parts_of_users`` is a module that it may name, ``own.yaml`` a config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("parts_of_users")
    (tmp_path / "own.yaml").write_text(OWN)

    def read(text, **changes):
        (tmp_path / "s.yaml").write_text(text)
        return reading.load("s.yaml", **changes)

    return read


def test_data_that_draw_from_torch_are_trained_on_one_by_one(load, tmp_path):
    """A transform is seeded in each batch of a run alone, and in a stack it would not be."""
    changes = "set: {data.class_path: parts_of_users.NoisyTransform, trainer.max_epochs: 1}\n"
    runs = load(f"base: ./own.yaml\n{changes}grid: {{model.activation: [relu]}}\nseeds: 2\n").runs()
    found = packing.pack(runs, tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1, 1]
    (reason,) = found.reasons
    assert reason.startswith("in a stack weights differ from a run alone after some updates")


def epochs_of(root, run, name="loss", split="val"):
    rows = metrics(root, run)
    return rows[(rows["split"] == split) & (rows["metric"] == name)]["epoch"].tolist()


def test_optimisers_of_several_kinds_do_not_share_a_stack(load, tmp_path):
    """By their paths alone as well: all were trained by the first one."""
    grid = (
        "grid: {model.activation: [relu], "
        "model.optimizer: [torch.optim.Adam, torch.optim.SGD]}\nseeds: 2\n"
    )
    runs = load(TINY + grid).runs()
    jobs = packing.pack(runs, tmp_path).jobs
    assert [{run.point["model.optimizer"] for run in job.runs} for job in jobs] == [
        {"torch.optim.Adam"},
        {"torch.optim.SGD"},
    ]
    tasks: list[Any] = [experiments.build(run.config).task for run in (runs[0], runs[-1])]
    with pytest.raises(ActlabError, match="different optimisers: Adam, SGD"):
        StackedTask(tasks).configure_optimizers()


def test_what_one_member_alone_could_not_have_a_stack_has_not_either(load):
    """Decay given twice was refused in a run alone, and in a stack left out."""
    study = load(
        TINY
        + "grid: {model.activation: [relu], model.optimizer.weight_decay: [0.0, 0.1]}\nseeds: 1\n",
        overrides=["model.l2={class_path: actlab.optim.L2, init_args: {strength: 0.1}}"],
    )
    tasks: list[Any] = [experiments.build(run.config).task for run in study.runs()[:1]] * 2
    tasks[1] = experiments.build(study.runs()[0].config).task
    tasks[1].optimizer = lambda params: torch.optim.Adam(params, weight_decay=0.1)
    with pytest.raises(ActlabError, match="both 'l2' and"):
        StackedTask(tasks).configure_optimizers()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            "model.class_path=parts_of_users.Buffered",
            "initial weights differ from a run alone (seen)",
        ),
        (
            "model.network.class_path=parts_of_users.AlwaysDropping",
            "AlwaysDropping has no stacked form",
        ),
    ],
)
def test_what_a_stack_would_not_keep_is_trained_alone(load, tmp_path, change, reason):
    overrides = [change, "model.network.dropout=0.3"]
    runs = load(TINY + "grid: {model.activation: [relu]}\nseeds: 2\n", overrides=overrides).runs()
    (said,) = packing.pack(runs, tmp_path).reasons
    assert reason in said


def test_runs_of_other_lengths_share_no_stack(load, tmp_path):
    """A task may ask the Trainer, which a stack has one of, for the number of its epochs."""
    runs = load(
        TINY + "grid: {model.activation: [relu], trainer.max_epochs: [1, 2]}\nseeds: 2\n"
    ).runs()
    assert [{run.epochs for run in job.runs} for job in packing.pack(runs, tmp_path).jobs] == [
        {1},
        {2},
    ]


def test_masks_of_some_members_make_a_clean_loss_of_all(load, tmp_path):
    """The first member has none, and the second's clean loss was copied from its training loss."""
    text = TINY + "grid: {model.activation: [relu], model.network.dropout: [0.0, 0.5]}\nseeds: 1\n"
    network = "model.network={class_path: parts_of_users.Dropped, init_args: {dropout: 0.0}}"
    runs = load(text, overrides=[network, "trainer.precision=64-true"]).runs()
    assert [len(job.runs) for job in packing.pack(runs, tmp_path / "stacked").jobs] == [2]
    for name in ("stacked", "alone"):
        execute(runs, tmp_path / name, stacked=name == "stacked")
    for run in runs:
        one, other = (metrics(tmp_path / name, run) for name in ("stacked", "alone"))
        both = one.merge(other, on=["step", "split", "metric"])
        clean = both[both["metric"] == "clean_loss"]
        assert len(clean) == 2
        assert clean["value_x"].to_numpy() == pytest.approx(clean["value_y"].to_numpy(), rel=1e-6)


# SOI has a clean pass
@pytest.mark.parametrize("unit", [pytest.param("relu", marks=pytest.mark.slow), "soi"])
def test_a_network_may_overwrite_its_inputs(load, tmp_path, unit):
    """Members shared the memory of evaluation batches; a clean loss left its batch overwritten."""
    found = []
    for inplace, stacked in ((False, False), (True, False), (True, True)):
        value = str(inplace).lower()
        network = f"{{class_path: parts_of_users.Normalised, init_args: {{inplace: {value}}}}}"
        text = f"{TINY}grid: {{model.activation: [{unit}]}}\nseeds: 2\n"
        runs = load(text, overrides=[f"model.network={network}", EXACT]).runs()
        root = tmp_path / f"{inplace}-{stacked}"
        execute(runs, root, stacked=stacked)
        found.append(pd.concat([metrics(root, run)["value"] for run in runs]).to_numpy())
    assert found[1] == pytest.approx(found[0], rel=ROUNDED)
    assert found[2] == pytest.approx(found[0], rel=ROUNDED)


def test_a_unit_that_acts_in_place_is_stacked(load, tmp_path):
    text = TINY + "grid: {model.activation: ['parts_of_users:Overwriting', relu]}\nseeds: 2\n"
    runs = load(text, overrides=[EXACT]).runs()
    execute(runs, tmp_path, stacked=True)
    own, relu = (
        pd.concat([metrics(tmp_path, run)["value"] for run in part]).to_numpy()
        for part in (runs[:2], runs[2:])
    )
    assert own == pytest.approx(relu, rel=ROUNDED)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            "trainer.callbacks=[{class_path: "
            "pytorch_lightning.callbacks.GradientAccumulationScheduler, "
            "init_args: {scheduling: {2: 3}}}]",
            [1, 2, 3, 4],
        ),
        ("data.class_path=parts_of_users.Stream", [1, 2, 3, 4]),
        ("model={class_path: parts_of_users.TwoOptimizers}", [1, 2, 3, 4]),
        ("trainer.val_check_interval=1", [k / 3 for k in range(1, 13)]),
    ],
)
def test_epochs_are_counted_by_batches(load, tmp_path, change, expected):
    """Not by updates, of which an epoch may have fewer, more, or an unknown number."""
    words = [change] if "Two" not in change else [change, "trainer.callbacks=[]"]
    study = load("base: own.yaml\ngrid: {trainer.max_epochs: [4]}\nseeds: 1\n", overrides=words)
    (run,) = study.runs()
    execute([run], tmp_path / "runs", stacked=False)
    assert epochs_of(tmp_path / "runs", run) == pytest.approx(expected)


def test_tests_after_an_epoch_take_no_augmented_batches(load, tmp_path):
    text = TINY + "grid: {model.activation: [relu]}\nseeds: 1\n"
    (run,) = load(text, overrides=["data.class_path=parts_of_users.Augmented"]).runs()
    execute([run], tmp_path, stacked=False)
    rows = metrics(tmp_path, run)
    last = rows[(rows["split"] == "test") & (rows["metric"] == "loss")]["value"].iloc[-1]
    trainer, task, data = experiments.build(run.config)
    found = torch.load(RunFolder(tmp_path, run).checkpoint, weights_only=True)
    task.load_state_dict(found["state_dict"])
    assert trainer.test(task, data, verbose=False)[0]["test/loss"] == pytest.approx(last, rel=1e-5)


def test_a_run_that_was_stopped_early_stays_so_after_a_kill(load, tmp_path):
    """Between its last save and its end: a resumed run trained on."""
    stop = (
        "[{class_path: pytorch_lightning.callbacks.EarlyStopping, "
        "init_args: {monitor: val/loss, patience: 1}}]"
    )
    text = "base: own.yaml\ngrid: {model.activation: [relu]}\nseeds: 1\n"
    words = [f"trainer.callbacks={stop}", "trainer.max_epochs=40"]
    runs = load(text, overrides=words).runs()
    execute(runs, tmp_path / "straight", stacked=False)
    epochs = int(epochs_of(tmp_path / "straight", runs[0])[-1])
    assert epochs < 40
    with pytest.raises(KilledError):
        execute(runs, tmp_path / "killed", stacked=False, progress=kill_after(epochs - 1))
    execute(runs, tmp_path / "killed", stacked=False)
    assert epochs_of(tmp_path / "killed", runs[0])[-1] == epochs


def test_a_diverged_run_says_where_it_was_good_last_whatever_its_trainer_goes_on_to(load, tmp_path):
    text = 'base: own.yaml\ngrid: {model.activation: ["parts_of_users:Explodes"]}\nseeds: 1\n'
    (run,) = load(text, overrides=["trainer.min_epochs=4"]).runs()
    execute([run], tmp_path, stacked=False)
    ended = result(tmp_path, run)
    assert (ended["status"], ended["last_good_epoch"]) == ("diverged", 2)
    assert epochs_of(tmp_path, run, split="train") == [1, 2]


PROBE = """\
probes:
  - {name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.0]}, at: AT}
"""


def test_probes_measure_each_run_on_its_own_data(load, tmp_path):
    text = "base: own.yaml\ngrid: {model.activation: [relu]}\nseeds: 2\n" + PROBE.replace(
        "AT", "last"
    )
    study = load(text, overrides=["trainer.precision=64-true"])
    runs = study.runs()
    execute(runs, tmp_path, stacked=False)
    evaluation.execute(runs, tmp_path, study.probes)
    for run in runs:
        rows, measured = metrics(tmp_path, run), pd.read_parquet(tmp_path / run.id / "probes")
        last = rows[(rows["split"] == "test") & (rows["metric"] == "loss")]["value"].iloc[-1]
        assert measured[measured["metric"] == "loss"]["value"].item() == pytest.approx(
            last, rel=1e-5
        )


def test_a_request_for_probes_reads_the_data_once(load, tmp_path, monkeypatch):
    """Each of 15 runs on ImageNet listed and hashed its 1.3 million files."""
    text = TINY + "grid: {model.activation: [relu]}\nseeds: 2\n" + PROBE.replace("AT", "last")
    samples = Path(__file__).parents[2] / "data" / "samples" / "mnist"
    study = load(
        text,
        overrides=[
            "data.sample=false",
            f"data.dataset={samples}",
            "data.validation=4000",
            "trainer.max_epochs=1",
        ],
    )
    runs = study.runs()
    execute(runs, tmp_path, stacked=False)
    read: list[str] = []

    def content_of(path, of_data, found=contents.content_of):
        read.append(path)
        return found(path, of_data)

    monkeypatch.setattr(contents, "content_of", content_of)
    assert evaluation.execute(runs, tmp_path, study.probes) == 0
    assert read.count(str(samples)) == 1
    assert all([*(tmp_path / run.id / "probes").iterdir()] for run in runs)


@pytest.mark.parametrize("change", ["its arguments", "its code"])
def test_what_a_probe_that_is_edited_measured_before_is_left_out(
    load, tmp_path, monkeypatch, change
):
    name = f"probing_by_{change.split()[1]}"  # what is imported stays so in later tests
    code = tmp_path / "modules" / f"{name}.py"
    code.parent.mkdir()
    code.write_text("from actlab.probes import InputNoise as Mine\n")
    monkeypatch.syspath_prepend(code.parent)
    probe = PROBE.replace("AT", "last").replace("actlab.probes.InputNoise", f"{name}.Mine")
    text = "base: own.yaml\ngrid: {model.activation: [relu]}\nseeds: 2\n"
    study = load(text + probe)
    execute(study.runs(), tmp_path, stacked=False)
    evaluation.execute(study.runs(), tmp_path, study.probes)
    before = results.load(StudyFolder(study, tmp_path))
    assert before.left_out == ()
    assert before.metrics.conditions["noise/test/loss"] == ["noise=0"]
    if change == "its code":
        code.write_text("from actlab.probes import InputNoise as Mine\n\nEDITED = True\n")
    else:
        study = load(text + probe.replace("[0.0]", "[0.5]"))
    (line,) = results.load(StudyFolder(study, tmp_path)).left_out
    assert "probe noise: what it measured in 2 runs is left out" in line
    assert results.load(StudyFolder(study, tmp_path)).metrics.awaits("noise/test/loss")
    evaluation.execute(study.runs(), tmp_path, study.probes)
    assert results.load(StudyFolder(study, tmp_path)).left_out == ()
    condition = "noise=0" if change == "its code" else "noise=0.5"
    assert results.load(StudyFolder(study, tmp_path)).metrics.conditions["noise/test/loss"] == [
        condition
    ]


def test_probes_refuse_data_that_change_batches_on_their_way(load, tmp_path):
    text = TINY + "grid: {model.activation: [relu]}\nseeds: 1\n" + PROBE.replace("AT", "last")
    study = load(text, overrides=["data.class_path=parts_of_users.Augmented"])
    execute(study.runs(), tmp_path, stacked=False)
    with pytest.raises(ActlabError, match="Augmented changes batches in on_after_batch_transfer"):
        evaluation.execute(study.runs(), tmp_path, study.probes)


@pytest.mark.parametrize("kind", ["StochasticWeightAveraging", "EMAWeightAveraging"])
def test_averaged_weights_are_refused_where_others_would_be_tested(load, cli, tmp_path, kind):
    arguments = "{swa_lrs: 0.1}" if kind.startswith("Stochastic") else "{}"
    load(
        "base: own.yaml\ngrid: {model.activation: [relu]}\nseeds: 1\ntable: [{metric: val/loss}]\n"
    )
    callback = f"{{class_path: pytorch_lightning.callbacks.{kind}, init_args: {arguments}}}"
    outcome = cli(
        "study",
        "run",
        "s.yaml",
        "--set",
        f"trainer.callbacks=[{callback}]",
        "--runs-dir",
        tmp_path / "r",
    )
    assert outcome.code == 2
    assert f"{kind} keeps averaged weights" in outcome.err


def test_the_best_checkpoint_is_the_best_by_the_rule_that_holds(load, tmp_path, capsys):
    """After a resume too, and where a finished study is given another rule."""
    text = "base: own.yaml\ngrid: {model.activation: [relu]}\nseeds: 2\n"
    late = load(text).runs()
    with pytest.raises(KilledError):
        execute(late, tmp_path / "late", stacked=False, progress=kill_after(3))
    best = text + PROBE.replace("AT", "best")
    study = load(best)
    execute(study.runs(), tmp_path / "late", stacked=False)
    evaluation.execute(study.runs(), tmp_path / "late", study.probes)
    said = capsys.readouterr().out
    for run in study.runs():
        check_best(tmp_path / "late", run, "loss", said)
    other = load(best + "select: {metric: val/error}\n")
    assert [run.id for run in other.runs()] == [run.id for run in study.runs()]
    evaluation.execute(other.runs(), tmp_path / "late", other.probes)
    said += capsys.readouterr().out
    for run in other.runs():
        check_best(tmp_path / "late", run, "error", said)


def check_best(root, run, name, said):
    """The probe stands at the epoch that was best, or says that no checkpoint of it was kept."""
    rows = metrics(root, run)
    values = rows[(rows["split"] == "val") & (rows["metric"] == name)]
    best = math.ceil(values["epoch"].iloc[values["value"].argmin()])
    probed = pd.read_parquet(root / run.id / "probes")
    assert set(probed["epoch"]) <= {best}
    assert len(probed) or f"{run.id} has no checkpoint 'best'" in said
