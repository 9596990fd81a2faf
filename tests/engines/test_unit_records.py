"""What a study records of every unit: by hooks of the test, alone, in a stack, over kills."""

import random
import shutil
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from actlab import experiments
from actlab.callbacks.unit_statistics import by_unit, measure, watching
from actlab.checks import forms
from actlab.random.positions import Position
from actlab.studies.run_folder import RunFolder
from damaging import damaged
from tiny_study import KilledError, execute, kill_after, load, metrics, untried

STATISTICS = (
    "{class_path: actlab.callbacks.UnitStatistics, init_args: {samples: 101, batch_size: 40}}"
)
OVERRIDES = [
    f"trainer.callbacks=[{STATISTICS}]",
    "model.activation=elu",
    "model.network.dropout=0.3",
    "model.optimizer.lr=0.01",
    "trainer.limit_train_batches=2",
    "trainer.val_check_interval=1.0",
]


def units(root, run):
    return pd.read_parquet(root / run.id / "units.parquet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of three epochs, alone and in a stack."""
    folder = tmp_path_factory.mktemp("units")
    runs = load(folder, overrides=OVERRIDES).runs()
    assert forms.reason_against(experiments.build(runs[0].config)) is None
    with untried():
        for engine in ("alone", "stacked"):
            execute(runs, folder / engine, stacked=engine == "stacked")
    return runs, folder


@pytest.mark.parametrize("engine", ["alone", "stacked"])
def test_every_unit_is_recorded_after_every_epoch(trained, engine):
    runs, folder = trained
    for run in runs:
        table = units(folder / engine, run)
        assert list(table.columns) == ["epoch", "layer", "unit", "mean", "median"]
        assert table.groupby(["epoch", "layer"])["unit"].apply(list).to_dict() == {
            (e, layer): list(range(1, 17)) for e in (1, 2, 3) for layer in (1, 2)
        }
        rows = metrics(folder / engine, run)
        for name in ("mean", "median"):
            logged = rows[rows["metric"] == f"median_of_{name}s"].set_index("epoch")["value"]
            lower = table.groupby("epoch")[name].apply(lambda v: np.sort(v)[(len(v) - 1) // 2])
            assert logged.to_dict() == pytest.approx(lower.to_dict())
        assert not (folder / engine / run.id / "units").exists()
        file = folder / engine / run.id / "units.parquet"
        assert len(pq.ParquetFile(file, page_checksum_verification=True).read()) == len(table)


def test_they_are_those_of_the_trained_network(trained):
    runs, folder = trained
    data: Any
    _, task, data = experiments.build(runs[0].config)
    saved = torch.load(RunFolder(folder / "alone", runs[0]).checkpoint, weights_only=True)
    task.load_state_dict(saved["state_dict"])
    data.setup("fit")
    images, _ = data.train.__getitems__(Position((0,), 0, torch.arange(101)))
    hidden, found = images.flatten(1), []
    for layer in (m for m in task.network.modules() if isinstance(m, torch.nn.Linear)):
        if layer.out_features == 16:
            hidden = torch.nn.functional.elu(layer(hidden))
            found.append(hidden)
    seen = torch.cat(found, 1)
    last = units(folder / "alone", runs[0]).query("epoch == 3")
    assert last["mean"].to_numpy() == pytest.approx(seen.mean(0).detach().numpy(), abs=1e-5)
    assert last["median"].to_numpy() == pytest.approx(
        seen.median(0).values.detach().numpy(), abs=1e-5
    )


@pytest.mark.parametrize("engine", ["alone", "stacked"])
def test_what_varies_over_epochs_is_a_row_a_layer(trained, engine):
    runs, folder = trained
    rows = metrics(folder / engine, runs[1]).set_index(["metric", "condition"])["value"]
    table = units(folder / engine, runs[1]).query("layer == 2")
    by_unit = table.pivot(index="epoch", columns="unit", values="median").astype("float64")
    assert rows["variance_of_medians", "layer=2"] == pytest.approx(by_unit.var().mean())
    quartile = by_unit.diff().var().quantile(0.75)
    assert rows["variance_of_changes_of_medians", "layer=2,quantile=0.75"] == pytest.approx(
        quartile
    )
    assert rows["always_zero_medians", "layer=2"] == (by_unit == 0).all().mean()


def test_a_stack_shows_what_each_shows_alone(trained):
    runs, folder = trained
    for run in runs:
        one, many = (units(folder / engine, run) for engine in ("alone", "stacked"))
        np.testing.assert_allclose(one["mean"], many["mean"], rtol=1e-2, atol=1e-3)


def test_damage_is_named(trained, tmp_path):
    runs, _ = trained
    with pytest.raises(KilledError):
        execute(runs[:1], tmp_path, False, kill_after(1))
    path = next(tmp_path.glob("*/units/1.npz"))
    path.write_bytes(damaged(path.read_bytes(), "bit", random.Random(0)))
    execute(runs[:1], tmp_path, False)
    assert "1.npz is damaged or missing. Delete " in RunFolder(tmp_path, runs[0]).state.reason
    shutil.rmtree(path.parents[1])
    execute(runs[:1], tmp_path, False)
    assert len(units(tmp_path, runs[0])) == 3 * 32


def test_little_memory_takes_several_passes_to_the_same_numbers(trained):
    task = experiments.build(trained[0][0].config).task.eval()
    images = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    passes = []

    def batches():
        passes.append(1)
        return iter([(part, None) for part in images.split(24)])

    with torch.no_grad():
        whole = measure(task, batches, 3, 2**30)
        few = len(passes)
        small = measure(task, batches, 3, 64 * 4 * 5)
    assert len(passes) - few > 2 * few
    assert whole.widths == small.widths == (16, 16)
    for name, values in whole.values.items():
        assert torch.equal(values, small.values[name])


def test_a_network_that_overwrites_what_a_unit_gave_changes_no_statistics():
    unit = torch.nn.GELU()
    x = torch.linspace(-1, 1, 8).view(2, 4)
    with watching([unit]) as seen:
        unit(x).add_(100)
    assert torch.equal(seen[0], unit(x))


def test_channels_are_units():
    maps = torch.arange(2 * 3 * 4 * 5.0).view(1, 2, 3, 4, 5)
    by_channel = by_unit(maps)
    assert by_channel.shape == (1, 2 * 4 * 5, 3)
    assert torch.equal(by_channel[0, :, 1], maps[0, :, 1].flatten())
