"""Modules as people write them: each trains in `fit` and in a study, or one line says why not."""

import json

import pandas as pd
import pytest

from actlab.errors.messages import described
from toys import ADAM, SIX, six

RECORDED = {  # a metric that each module logs
    **{"Partials": "val/acc", "GAN": "val_mse", "Segmenter": "val1/iou"},
    **{"VAE": "val/kl", "Forecaster": "val_loss", "Tagger": "val_accuracy"},
}
TRAINER = {
    "max_epochs": 2,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
QUICK = ("Partials", "Tagger")


@pytest.fixture
def folder(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("six_modules")
    program("mistaken_modules")
    return tmp_path


def write(folder, model, data, grid="model.activation: [relu]", **trainer):
    """Write ``base.yaml``, in JSON, and ``own.yaml`` with a grid over it."""
    base = {"model": model, "data": data, "trainer": {**TRAINER, **trainer}}
    (folder / "base.yaml").write_text(
        json.dumps({name: part for name, part in base.items() if part})
    )
    (folder / "own.yaml").write_text(f"base: base.yaml\ngrid: {{{grid}}}\nseeds: 1\n")


def write_six(folder, name, **data):
    parts, key = six(name, **data)
    write(folder, **parts, grid=f"{key}: [relu, gelu]")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SIX]
)
def test_each_trains_in_a_fit_and_in_a_study(succeed, folder, name):
    write_six(folder, name)
    succeed("fit", "-c", "base.yaml")
    outcome = succeed("study", "run", "own.yaml")
    assert "2 of 2 runs finished." in outcome.out
    for path in folder.glob("runs/own/*/metrics.parquet"):
        names = {
            "/".join(filter(None, row))
            for row in pd.read_parquet(path)[["split", "metric"]].to_numpy()
        }
        assert RECORDED[name] in names
    if name in ("Tagger", "Forecaster"):
        (checkpoint,) = folder.glob("runs/base/*/checkpoints/*.ckpt")
        succeed("predict", "--ckpt_path", checkpoint, "--trust")
        (table,) = folder.glob("runs/base/*/predictions.parquet")
        found = pd.read_parquet(table)
        assert len(found) == {"Tagger": 16, "Forecaster": 18}[name]
        assert name != "Tagger" or {"label", "score"} <= {*found.columns}


@pytest.mark.slow
def test_loaders_of_a_study_have_processes_as_in_a_script(succeed, folder):
    """A closure as ``collate_fn`` cannot be pickled; forked processes need no pickles."""
    write_six(folder, "Tagger", num_workers=1)
    outcome = succeed("study", "run", "own.yaml", "--jobs", "1")
    assert "2 of 2 runs finished." in outcome.out


MISTAKES = {
    "TakesAnOptimizer": (
        "model.optimizer: torch.optim.Adam requires 'params', which the module passes. Annotate "
        "the argument with `OptimizerCallable` of pytorch_lightning.cli"
    ),
    "HasLoaders": "data: expected a class, got none. Add -c CONFIG, or pass --data CLASS. "
    "Move a module's own data loaders into a LightningDataModule",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_a_script_does_not_need_is_one_line(cli, folder, name):
    takes = {"optimizer": ADAM} if name == "TakesAnOptimizer" else {}
    data = None if name == "HasLoaders" else {"class_path": "mistaken_modules.Points"}
    write(folder, {"class_path": f"mistaken_modules.{name}", "init_args": takes}, data)
    outcome = cli("fit", "-c", "base.yaml")
    assert (outcome.code, MISTAKES[name] in outcome.err.splitlines()[-1]) == (2, True), outcome.err
    assert "Traceback" not in outcome.err
    outcome = cli("study", "run", "own.yaml")
    assert MISTAKES[name] in outcome.out + outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("line", ["import lightning as pl", "import lightning.pytorch as pl"])
def test_lightning_of_the_other_name_gets_its_remedy_where_it_is_not_installed(cli, folder, line):
    (folder / f"theirs{len(line)}.py").write_text(
        f"{line}\n\n\nclass Net(pl.LightningModule):\n    pass\n"
    )
    outcome = cli("fit", "--model", f"theirs{len(line)}.Net", "--data", "mistaken_modules.Points")
    assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert "Replace lightning.pytorch with pytorch_lightning" in outcome.err


def test_an_error_in_the_data_ends_a_study_with_one_line(cli, folder):
    points = {"class_path": "mistaken_modules.Points", "init_args": {"missing": "setup"}}
    write(folder, {"class_path": "mistaken_modules.Line"}, points)
    outcome = cli("study", "run", "own.yaml", "--jobs", "1")
    line = (
        "actlab: error: FileNotFoundError: no images here (mistaken_modules.py, line 44: "
        'raise FileNotFoundError("no images here"))'
    )
    assert (outcome.code, outcome.err.splitlines()) == (2, [line])


def test_an_error_in_a_process_of_a_loader_names_the_line_too(folder):
    import mistaken_modules

    with pytest.raises(FileNotFoundError) as raised:
        next(iter(mistaken_modules.Points("loader", num_workers=1).train_dataloader()))
    assert described(raised.value) == (
        "FileNotFoundError: no images here (mistaken_modules.py, line 44: "
        'raise FileNotFoundError("no images here"))'
    )


def test_a_run_that_early_stopping_ends_says_at_which_epoch(succeed, folder):
    stopping = {"monitor": "val/loss", "patience": 1, "min_delta": 1e9}
    callback = {"class_path": "pytorch_lightning.callbacks.EarlyStopping", "init_args": stopping}
    model, data = {"class_path": "mistaken_modules.Line"}, {"class_path": "mistaken_modules.Points"}
    write(folder, model, data, callbacks=[callback], max_epochs=9)
    outcome = succeed("study", "run", "own.yaml", "--verbose").out
    assert ", ended after epoch 2 of 9\n" in outcome
    assert "1 run ended before the last epoch, after epoch 2\n" in outcome
