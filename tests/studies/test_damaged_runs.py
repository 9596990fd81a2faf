"""Damaged files of finished runs: each is named, and every other run is probed and shown."""

import hashlib
import io
import json
import shutil

import pandas as pd
import pyarrow as pa
import pytest

from tiny_study import study_text, trained_once

SHOWN = """\
figures: [{name: curves, lines: model.activation, y: {val/loss: heldout}}]
table: [{metric: test/error, at: last}]
"""
STUDY = study_text("model.activation: [relu, elu]", SHOWN, batches=1)
PROBE = (
    "probes: [{name: noise, class_path: actlab.probes.InputNoise, "
    "init_args: {strengths: [0.0, 1.0]}}]\n"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a finished study without probes."""
    return trained_once(tmp_path_factory.mktemp("trained"), STUDY).parent


@pytest.fixture
def study(cli, trained, tmp_path, monkeypatch):
    """Runs a command of a copy of the study, in the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return lambda command, *words: cli("study", command, "tiny.yaml", *words)


def runs(tmp_path):
    return sorted(path.parent for path in (tmp_path / "runs/tiny").glob("*/result.json"))


def flip(path):
    """Turn one bit in the values of a file of rows: right after the first page's header."""
    content = bytearray(path.read_bytes())
    content[len(content) // 12] ^= 16
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("name", "damage", "code", "probed"),
    [
        ("metrics.parquet", flip, 0, 4),
        ("checkpoints/last.ckpt", cut, 1, 3),
        ("result.json", cut, 0, 3),
    ],
)
def test_a_damaged_run_is_named_and_the_others_are_probed(
    study, tmp_path, name, damage, code, probed
):
    first, *others = runs(tmp_path)
    damage(first / name)
    (tmp_path / "tiny.yaml").write_text(STUDY + PROBE)
    outcome = study("run", "--report")
    assert outcome.code == code, outcome.err
    assert f"{first.name}/{name}" in outcome.out + outcome.err
    assert all([*(other / "probes").glob("noise*.parquet")] for other in others)
    assert len([*tmp_path.glob("runs/tiny/*/probes/noise*.parquet")]) == probed
    values = pd.read_csv(tmp_path / "runs/tiny/values.csv")
    assert len(values) == (4 if code else 3), "a run whose files of values are damaged is left out"


def test_show_and_status_read_and_write_no_cache(study, tmp_path):
    """Earlier versions recorded the end of runs in a file that anybody could have written."""

    def shown():
        return study("show").out, study("status").out

    before = shown()
    body = pa.BufferOutputStream()
    table = pa.table({"run": ["a"], "stamp": [1], "result": [2.5]})
    with pa.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)
    content = bytes(body.getvalue())
    crafted = hashlib.sha256(b"actlab ended 1\n" + content).digest() + content
    (tmp_path / "runs/tiny/.ended.arrow").write_bytes(crafted)
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert shown() == before
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == files
    assert json.loads(study("show", "--json").out)["finished"] == 4
    assert len(pd.read_csv(io.StringIO(study("show", "--csv").out))) == 4
    assert study("show", "--json", "--csv").code == 2
