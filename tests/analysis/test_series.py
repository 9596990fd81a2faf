"""What a table reads of a run is the same off the summary in its result and off its rows."""

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actlab.analysis import results
from actlab.analysis.columns import Column, column
from actlab.analysis.comparison import table_of
from actlab.analysis.results import read_at
from actlab.storage import series
from actlab.storage.json_files import write_json
from actlab.studies.plan import Study
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.studies.study_folder import StudyFolder
from written_runs import finished, one_unit, study, write

PLACES = ("last", "best", "best_epoch", "selected", 0.5, 1, 2)
EPOCHS = (0.0, 1 / 3, 1 - 2 / 3, 2 / 3, 1.0, 3 * (1 / 3), 2.0, 1.9999999)
MODES = ("min", "max")
VALUES = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 0.5])
ROWS = st.builds(
    Row,
    st.sampled_from(EPOCHS),
    st.integers(0, 5),
    st.sampled_from(["val", "test", ""]),
    st.sampled_from(["loss", "error"]),
    st.sampled_from(["", "layer=1"]),
    VALUES,
    loop=st.just(""),
)


def by_hand(rows: Iterable[Row], name: str, condition: str) -> list[tuple[float, float]]:
    """Epochs and values of a series: of rows at one epoch, the highest step or the later row."""
    found = {}
    for row in sorted(rows, key=lambda r: r.step):
        if (row.name, row.condition) == (name, condition):
            found[round(row.epoch, 6)] = row.value
    return sorted(found.items())


def value_by_hand(points: list[tuple[float, float]], at: str | float, mode: str) -> float | None:
    worst, best = (math.inf, min) if mode == "min" else (-math.inf, max)
    points = [(epoch, worst if math.isnan(value) else value) for epoch, value in points]
    values = [value for _, value in points]
    if at == "last":
        return values[-1]
    if at in ("best", "best_epoch"):
        place = values.index(best(values))
        return (
            math.inf
            if (at, values[place]) == ("best_epoch", worst)
            else points[place][at == "best"]
        )
    return next((value for epoch, value in reversed(points) if epoch <= float(at)), None)


def columns_of(rows: Iterable[Row], plan: Study) -> Iterator[Column]:
    for name, condition in dict.fromkeys((row.name, row.condition) for row in rows):
        for at, mode in itertools.product(PLACES, MODES):
            yield column({"metric": name, "at": at, "mode": mode, "condition": condition}, plan)


@given(st.lists(ROWS, min_size=1, max_size=25))
@settings(max_examples=20, deadline=None)
def test_summary_and_rows_give_the_value_that_is_found_by_hand(rows):
    plan = one_unit()
    (run,) = plan.runs()
    with TemporaryDirectory() as root:
        folder = RunFolder(Path(root), run)
        folder.open()
        folder.finish(FINISHED, rows)
        loaded = results.load(StudyFolder(plan, Path(root)))
        read = series.summaries(loaded.series[run.id].trained)
        assert repr(sorted(loaded.series[run.id].summaries.items())) == repr(sorted(read.items()))
        for shown in columns_of(rows, plan):
            value = loaded.value(run, shown)
            points = by_hand(rows, shown.metric, shown.condition)
            if shown.at != "selected":
                assert value == value_by_hand(points, shown.at, shown.mode)
                epochs, values = loaded.series[run.id][shown.metric, shown.condition]
                np.testing.assert_array_equal(np.stack([epochs, values], axis=1), np.array(points))
                assert value == read_at(epochs, values, shown.at, shown)


@pytest.mark.parametrize("at", PLACES)
def test_a_nan_is_never_best(tmp_path, at):
    loaded = finished(tmp_path, one_unit(), {"val/accuracy": [0.5, math.nan, 0.9, 0.8]})
    expected = {"last": 0.8, "best": 0.9, "best_epoch": 3, 1: 0.5, 2: -math.inf}
    read = column({"metric": "val/accuracy", "at": at}, loaded.study)
    assert loaded.value(loaded.runs[0], read) == expected.get(at)


def test_a_table_of_last_and_best_values_reads_no_rows(tmp_path, monkeypatch):
    places = ("last", "best", "best_epoch")
    table = (
        *({"metric": "test/error", "at": at} for at in places),
        {"metric": "val/dead", "condition": "layer=1", "ranked": False},
    )
    plan = study(seeds=tuple(range(7)), table=table)
    for run in plan.runs()[:-1]:
        dead = [Row(1.0, 10, "val", "dead", "layer=1", 0.5)] * (run.seed != 3)
        status = DIVERGED if run.seed == 5 else FINISHED
        write(
            tmp_path,
            run,
            {"val/loss": [1.0, math.nan, 0.5], "test/error": [0.5, 0.1, 0.3]},
            status,
            dead,
        )
    read = []
    monkeypatch.setattr(series, "read", lambda file, *_: read.append(file))
    assert len(table_of(results.load(StudyFolder(plan, tmp_path))).rows) == 2
    assert read == []


def test_a_summary_of_unknown_form_is_named(tmp_path):
    for entry in ({"val/loss": 1.0}, {"val/loss": {"": {"last": 1.0}}}, [1]):
        plan = one_unit(seeds=2)
        finished(tmp_path, plan, {"test/error": [0.5]})
        folder = RunFolder(tmp_path, plan.runs()[0])
        write_json(folder.path / "result.json", {**folder.result(), "summary": entry})
        loaded = results.load(StudyFolder(plan, tmp_path))
        assert loaded.missing == 1
        assert str(folder.path) in loaded.left_out[0]
        assert "run the study again" in loaded.left_out[0]


def test_a_run_without_rows_has_no_series(tmp_path):
    loaded = finished(tmp_path, one_unit(), {}, lambda run: True)
    (run,) = loaded.runs
    assert (loaded.series[run.id].summaries, loaded.diverged) == ({}, 1)
    assert series.read(RunFolder(tmp_path, run).metrics) == {}


def test_texts_of_any_type_are_read(tmp_path):
    rows = pd.DataFrame(
        [(1, 4, None, "a/b", None, 2), (2, 8, "a", "b", "", 3)], columns=Row._fields[:-1]
    )
    rows["metric"] = rows["metric"].astype("category")
    rows.to_parquet(tmp_path / "x.parquet", row_group_size=1)
    ((key, found),) = series.read(tmp_path / "x.parquet", "p/").items()
    assert key == ("p/a/b", "")
    assert (found.epochs.tolist(), found.values.tolist()) == ([1, 2], [2, 3])
