"""The scoreboard counts what all ranked units have, and gives no rank to what is no better than guessing."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis.scoreboard import Board, Record, boards
from actlab.reports.terminal import print_boards
from actlab.storage.resources import resource
from actlab.studies.reading import load

STUDIES = sorted(path.stem for path in resource("configs/studies").glob("*.yaml"))
CLASSES = {"mnist": 10, "cifar100": 100, "cifar10": 10, "twitter": 25, "timit": 39}  # of the data set


def record(name: str, *rows: tuple[str, str, float | None], **column: Any) -> Record:
    """A study's table with rows of unit, block and median error."""
    cell = {"metric": "test/error", "at": "last", "n": 2, "percent": True, "mode": "min", **column}
    found = [{"point": {"unit": u, "block": b}, "columns": [{**cell, "median": m}]} for u, b, m in rows]
    table: Any = {"study": name, "compare": "unit", "rows": found}  # what ranks need of it
    return Record(Path(name), table)


def shown(*records: Record) -> tuple[Board, str]:
    (board,) = boards(records)
    text = io.StringIO()
    print_boards(records, text)
    return board, text.getvalue()


def test_a_block_that_others_lack_does_not_count() -> None:
    """Of one's own unit and ReLU alone: it would count as one more task in which one's own beats all."""
    every = record("a", ("elu", "p", 0.1), ("mine", "p", 0.2), ("relu", "p", 0.3))
    blocks = (("elu", "p", 0.2), ("mine", "p", 0.1), ("relu", "p", 0.3))
    board, text = shown(every, record("b", *blocks, ("mine", "original", 0.1), ("relu", "original", 0.2)))
    assert board.beaten == {"elu": 0.75, "mine": 0.75, "relu": 0.0}
    assert [task.counted for task in board.tasks] == [True, True, False]
    assert all(math.isnan(place.rank) for place in board.tasks[2].places.values())
    assert "2 of 3 tasks count: those in which elu, mine, relu have all their runs" in text


def test_what_is_no_better_than_guessing_has_no_rank_and_beats_nothing() -> None:
    rows = (("elu", "p", 0.86), ("mine", "p", 0.93), ("gelu", "p", 0.9), ("relu", "p", None))
    board, text = shown(
        record("a", *rows, chance=0.9), record("b", *[(u, b, 0.95) for u, b, _ in rows], chance=0.9)
    )
    assert board.beaten == {"elu": 1.0, "mine": 0.0, "gelu": 0.0, "relu": 0.0}
    assert [task.counted for task in board.tasks] == [True, False]
    assert all(words in text for words in ("86.00 (1)", "93.00 (chance)", "90.00 (chance)", "diverged"))
    assert "(chance): no better than guessing, so it has no rank and beats no other." in text


def test_an_accuracy_is_chance_where_it_is_low() -> None:
    rows = (("elu", "p", 0.3), ("mine", "p", 0.1), ("relu", "p", 0.2))
    board, _ = shown(record("a", *rows, metric="test/accuracy", mode="max", chance=0.1))
    assert {unit: place.guessing for unit, place in board.tasks[0].places.items()} == {
        **{"elu": False, "relu": False},
        "mine": True,
    }


def test_a_unit_with_few_of_the_tasks_is_not_ranked() -> None:
    tasks = [record(name, ("elu", "p", 0.1), ("gelu", "p", 0.2), ("relu", "p", 0.3)) for name in "abc"]
    alone = record("d", ("mine", "p", 0.1), ("relu", "p", 0.2))
    board, text = shown(*tasks, alone)
    beaten = dict(board.beaten)
    assert math.isnan(beaten.pop("mine"))
    assert beaten == {"elu": 1.0, "gelu": 0.5, "relu": 0.0}
    assert "Not ranked, for they lack some of these tasks: mine." in text


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_says_what_guessing_gives(name: str) -> None:
    study = load(name)
    column = next((c for c in study.table if c.get("ranked", True)), {"metric": ""})
    if column["metric"].endswith("/error"):
        data = json.dumps(study.blocks[0].base["data"]).lower()
        classes = next(number for name, number in CLASSES.items() if name in data)
        assert column["chance"] == pytest.approx(1 - 1 / classes, abs=1e-4)
