"""A scoreboard of a test's own."""

import pytest
import yaml

import tables_by_hand
from actlab.scoreboard import definition
from scored_rows import UNIT, noisy, row, spread


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A function that makes a mapping the definition of a version of the scoreboard."""

    def stated(content, version=definition.CURRENT):
        file = tmp_path / f"scoreboard_{version}.yaml"
        content = {**content, "version": version}
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        monkeypatch.setitem(definition.FILES, version, str(file))
        definition.load.cache_clear()

    yield stated
    definition.load.cache_clear()


@pytest.fixture
def kept(tmp_path, state):
    """A scoreboard of three tasks, with GELU, ReLU and sine."""
    tables = {
        "words": [row("gelu", spread(1.0)), row("relu", spread(1.1)), row("sine", spread(0.9))],
        "waves": [row("gelu", spread(0.1)), row("relu", spread(2.0)), row("sine", spread(0.05))],
        "photo": [
            row(x, noisy(y), mode="max", scale="decibels")
            for x, y in (("gelu", 20.0), ("relu", 17.0), ("sine", 30.0))
        ],
    }
    for name, rows in tables.items():
        tables_by_hand.leave(tmp_path, tables_by_hand.table(name, UNIT, rows, reference="gelu"))
    data = {name: {"table": str(tmp_path / name)} for name in tables}
    task = {"study": "pinn_helmholtz"}
    tasks = {
        "text": {**task, "title": "text", "data": {"words": data["words"]}},
        "equation": {
            **task,
            "title": "equation",
            "data": {"waves": {**data["waves"], "chance": 1.0}},
        },
        "picture": {**task, "title": "picture", "data": {"photo": data["photo"]}},
    }
    file = {"reference": "gelu", "equivalence": 1.02, "least_gain": 0.1, "tasks": tasks}
    state(file)
    return {
        (name, data): tables[data]
        for name, data in (("text", "words"), ("equation", "waves"), ("picture", "photo"))
    }
