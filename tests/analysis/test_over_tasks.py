"""Over tasks: probabilities of being better, their intervals, profiles, and what does not count, by name."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from actlab.analysis.differences import wins
from actlab.analysis.over_tasks import mean_better, profile
from actlab.analysis.scoreboard import Board, KeptCell, StoredTable, Table, boards, column_of
from actlab.storage.resources import resource
from actlab.studies.reading import load
from boards_by_hand import cell, on_page, table

STUDIES = sorted(path.stem for path in resource("configs/studies").glob("*.yaml"))
CLASSES = {"mnist": 10, "cifar100": 100, "cifar10": 10, "twitter": 25, "timit": 39}  # of the data set
# The error of guessing the most frequent class, .8865, and of equal classes as float32, both rounded down.
MOST_FREQUENT = {"board_mnist": 0.886, "fashion_mnist": 0.899}
RLIABLE: dict[str, list[list[float]]] = {
    "x": [[1, 2], [2, 2], [1, 1], [2, 1]],
    "y": [[1, 1], [2, 2], [3, 3]],
}  # runs × tasks, of its own test
Runs = dict[str, list[float | None]]


def record(name: str, *points: Runs, chance: Sequence[str] = (), **column: Any) -> StoredTable:
    """A study's table with the values of each activation's runs, at each of several points.

    The medians of the activations in ``chance`` are not better than guessing.
    """
    worst = -math.inf if column.get("mode") == "max" else math.inf
    rows = []
    for point, runs in enumerate(points):
        for unit, values in runs.items():
            middle = float(np.median([worst if value is None else value for value in values]))
            median = middle if math.isfinite(middle) else None
            by_seed = {str(seed): value for seed, value in enumerate(values)}
            where = {"unit": unit, **({"point": point} if len(points) > 1 else {})}
            found = cell(by_seed, median, **({"chance": 0.9} if chance else {}), **column)
            assert not chance or column_of(cast(KeptCell, found)).failed(middle) == (unit in chance)
            rows.append({"point": where, "columns": [found]})
    return StoredTable(Path(name), cast(Table, table(name, "unit", rows)))


def shown(*records: StoredTable) -> tuple[Board, str]:
    (board,) = boards(records)
    return board, on_page(records)


def spread(middle: float, runs: int = 6) -> list[float | None]:
    return [middle + 0.001 * (seed - runs / 2) for seed in range(runs)]


def better(board: Board) -> dict[str, float]:
    return {label: mean.probability for label, mean in board.means.items()}


@pytest.mark.parametrize(("mode", "probability"), [("max", 1 / 3), ("min", 2 / 3)])
def test_the_probability_on_the_numbers_of_rliable(mode: str, probability: float) -> None:
    """Its test says 1/3 of x over y, where high is good."""
    tasks: list[dict[str, list[float | None]]] = [
        {unit: [run[task] for run in runs] for unit, runs in RLIABLE.items()} for task in (0, 1)
    ]
    board, text = shown(
        *(record(f"{n}", {"relu": t["y"], "x": t["x"]}, mode=mode) for n, t in enumerate(tasks))
    )
    assert better(board) == {"x": pytest.approx(probability)}
    assert "probability of being better than relu [other seeds] [other seeds and tasks]" in text
    assert f" x {probability:.2f} [" in text


def test_a_study_counts_once_however_many_points_it_has() -> None:
    wins_ = {"gelu": spread(0.2), "relu": spread(0.1)}
    losses = {"gelu": spread(0.1), "relu": spread(0.2), "elu": spread(0.05)}
    board, text = shown(record("a", wins_, wins_, wins_), record("b", losses))
    assert better(board) == {"elu": 1.0, "relu": 0.5}
    assert board.labels == ["elu", "gelu", "relu"]  # the reference as one of 0.5
    assert "elu 1.00 [0.91, 1.00] 1 task " in text
    assert "4 tasks of 2 studies" in text
    assert "Intervals take 6 runs a side, the second also 3 studies." in text


def test_the_interval_over_tasks_says_how_much_a_new_task_may_change() -> None:
    """Two tasks won by all runs and two lost: other seeds change nothing, other tasks all."""
    won, lost = {"gelu": spread(0.2), "relu": spread(0.1)}, {"gelu": spread(0.1), "relu": spread(0.2)}
    board, _ = shown(record("a", won), record("b", won), record("c", lost), record("d", lost))
    mean = board.means["relu"]
    assert mean.runs
    assert mean.tasks
    assert 0.4 < mean.runs[0] < 0.5 < mean.runs[1] < 0.6
    assert mean.tasks[0] < 0.05
    assert mean.tasks[1] > 0.95


def test_a_diverged_run_loses_against_all_others_and_reaches_no_ratio() -> None:
    runs: Runs = {"gelu": [0.1, 0.2, None], "relu": [0.05, 0.05, None]}
    board, text = shown(record("a", runs))
    assert better(board) == {"relu": pytest.approx((2 * 3 + 0.5) / 9)}
    assert {label: shares[-1] for label, (_, shares, _) in board.profiles.items()} == {
        "gelu": pytest.approx(2 / 3),
        "relu": pytest.approx(2 / 3),
    }
    assert "Fewer than 6 runs: a." in text


def test_no_seed_wins_against_a_reference_at_chance() -> None:
    two: Runs = {"gelu": [0.92, 0.92], "elu": [0.88, 0.92], "relu": [0.3, 0.3]}
    board, text = shown(record("a", two, chance=("gelu", "elu")))
    assert better(board) == {}
    assert "Left out over tasks (gelu is at chance): a." in text
    assert "90.00 chance" in text
    assert "30.00 " in text


def test_an_activation_at_chance_loses_and_is_marked() -> None:
    runs: Runs = {"gelu": spread(0.5), "elu": [0.89, 0.92], "relu": spread(0.4)}
    board, text = shown(record("a", runs, chance=["elu"]))
    assert better(board) == {"relu": 1.0, "elu": 0.0}
    assert "90.50 0.00, chance, 2 of 6 runs" in text


def test_a_run_at_chance_ties_with_one_that_diverged() -> None:
    """Both failed: neither wins, neither reaches a ratio, and a reference that diverged decides nothing."""
    runs: Runs = {"gelu": [0.1, 0.1, 0.95], "relu": [0.05, 0.05, None]}
    board, _ = shown(record("a", runs, chance=["none"]))
    assert better(board) == {"relu": pytest.approx((2 * 3 + 0.5) / 9)}
    assert {label: shares[-1] for label, (_, shares, _) in board.profiles.items()} == {
        "gelu": pytest.approx(2 / 3),
        "relu": pytest.approx(2 / 3),
    }
    board, text = shown(record("a", {"gelu": [None] * 3, "relu": [0.05] * 3}))
    assert better(board) == {}
    assert "Left out over tasks (gelu is at chance): a." in text


def test_tasks_with_another_reference_or_chosen_values_do_not_count() -> None:
    runs = {"gelu": spread(0.1), "relu": spread(0.2)}
    others = record("b", {"relu": spread(0.1), "elu": spread(0.2)})
    chosen = record("c", runs, metric="val/error", biased=True)
    board, text = shown(record("a", runs), others, chosen, record("e", {"srelu": spread(0.1)}))
    assert better(board) == {"relu": 0.0}
    assert board.means["relu"].number == 1
    for words in (
        "(compared with relu): b.",
        "(values are the best of several): c.",
        "(no reference): e.",
    ):
        assert words in text


def test_a_profile_is_the_share_of_runs_within_a_ratio() -> None:
    one: Runs = {"gelu": [0.1, 0.2, 0.3], "relu": [0.2, 0.4, None]}
    high: Runs = {"gelu": [0.5, 0.5], "relu": [0.25, 1.0]}
    zero: Runs = {"gelu": [0.1, 0.2], "relu": [0.0, 0.1]}
    board, text = shown(record("a", one), record("b", high, mode="max"), record("c", zero))
    ratios, shares, number = board.profiles["relu"]
    # ÷ 0.2: 1, 2, never; 0.5 ÷: 2, 0.5.
    assert ratios.tolist() == [0.5, 1.0, 2.0]
    assert shares.tolist() == pytest.approx([1 / 4, 1 / 4 + 1 / 6, 1 / 2 + 1 / 3])
    assert number == 2
    assert "Left out of the profile (a value is 0 or less, or the reference diverged): c." in text


def test_decibels_are_divided_as_mean_squared_errors_and_relative_errors_differ_by_ratios() -> None:
    psnr: Runs = {"gelu": [20.0] * 6, "relu": [10.0, 23.0103, 20.0, -1.0, 20.0, 20.0]}
    board, _ = shown(record("a", psnr, mode="max", scale="decibels"))
    assert board.profiles["relu"][0].tolist() == pytest.approx([0.5, 1.0, 10.0, 10**2.1])
    errors: Runs = {"gelu": spread(0.1), "relu": [2 * (value or 0) for value in spread(0.1)]}
    board, text = shown(record("b", errors, scale="log"))
    assert board.tasks[0].differences["relu"].mean == pytest.approx(math.log(2))
    assert "relu ×2.00 [×2.00, ×2.00]" in text


def test_profiles_are_those_of_a_loop() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        studies = [[rng.lognormal(size=rng.integers(2, 5)) for _ in range(k)] for k in (1, 3)]
        for ratio, share in zip(*profile(studies), strict=True):
            assert share == pytest.approx(np.mean([np.mean([(t <= ratio).mean() for t in s]) for s in studies]))


def test_intervals_cover_the_true_mean() -> None:
    """Ten activations of six tasks with six runs a side, which win always, mostly or half of the time."""
    rng, found = np.random.default_rng(5), []
    for shift in (0.0, 1.0, 2.0, 3.0):
        truth = 0.5 * (1 + math.erf(shift / 2))
        for _ in range(10):
            runs = rng.standard_normal((6, 2, 6))
            mean = mean_better([[wins(mine - shift, theirs)] for mine, theirs in runs])
            assert mean.runs
            assert mean.tasks
            assert mean.runs[0] <= mean.probability <= mean.runs[1]
            found.append(mean.runs[0] <= truth <= mean.runs[1])
    assert np.mean(found) >= 0.9


def test_every_study_says_what_guessing_gives() -> None:
    for name in STUDIES:
        study = load(name)
        column = next((c for c in study.table if c.get("ranked", True)), {"metric": ""})
        if column["metric"].endswith("/error"):
            data = json.dumps(study.blocks[0].base["data"]).lower()
            classes = next(number for name, number in CLASSES.items() if name in data)
            assert column["chance"] == pytest.approx(MOST_FREQUENT.get(name, 1 - 1 / classes), abs=1e-4)
