"""Records with values of other types: named in one line, the others are shown, no traceback."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.reports import stored, table_files
from actlab.scoreboard import studies_page, tables
from actlab.storage.files import DamagedError
from actlab.studies.study_folder import COSTS, SELECTION, StudyFolder
from fuzzing import OTHER_TYPES, listed, retyped, tried
from written_runs import finished, probe, study

COST = {
    **{
        "compared": "relu",
        "seconds_per_update": 0.5,
        "bytes_kept": 8,
        "hardware": "here",
        "measured": "now",
    },
    **{"seconds_in_parts": [0.5, 0.6], "rounds": 25},
    **{"seconds_added": 0.1, "seconds_added_in_parts": [0.1, 0.2], "undeclared": ["Mine"]},
    "machine": {"load": 9.0, "cores": 2, "cpu_per_second": 0.5},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study, with costs and its table."""
    root, plan = tmp_path_factory.mktemp("whole") / "s", study()
    finished(root, plan)
    costs = [{"run": run.id, "point": dict(run.point), **COST} for run in plan.runs()]
    (root / COSTS).write_text(json.dumps(costs))
    table_files.write(
        table_of(results.load(StudyFolder(plan, root))), results.load(StudyFolder(plan, root)), root
    )
    return root


def shown(root: Path) -> str:
    """Everything that a study shows of its records."""
    loaded = results.load(StudyFolder(study(), root))
    table_files.to_markdown(table_of(loaded))
    return "\n".join(table_of(loaded).footnotes)


each_value = pytest.mark.parametrize(
    "each", [1, pytest.param(len(OTHER_TYPES), marks=pytest.mark.slow)]
)


@each_value
@pytest.mark.parametrize(("name", "least"), [("result.json", 15), (COSTS, 15)])
def test_values_of_other_types_in_records_are_named(whole, tmp_path, name, least, each):
    """Each place, with some values or every one: a value of another type is named, or not read."""
    root = Path(shutil.copytree(whole, tmp_path / "s"))
    file = min(root.rglob(name))
    before, faults, named = shown(root), {}, 0
    for case, content, is_other in retyped(unsealed(file), each):
        file.write_text(json.dumps(content))
        text, fault = tried(lambda: shown(root))
        is_named = not fault and f"{file} is damaged" in text
        named += is_named
        faults[case] = fault or (
            "" if is_named or text == before or not is_other else "it is not named"
        )
    assert not (wrong := listed(faults)), wrong
    assert named >= least * each


def unsealed(file: Path) -> Any:
    """What a record holds, without its digest."""
    content = json.loads(file.read_text())
    return (
        content
        if isinstance(content, list)
        else {k: v for k, v in content.items() if k != "digest"}
    )


@each_value
def test_tables_of_other_types_are_named_and_the_others_shown(cli, whole, tmp_path, each):
    """Each place of table.json, with some values or every one: on the page."""
    for name in ("a", "b"):
        shutil.copytree(whole, tmp_path / name)
    file = tmp_path / "a/table.json"
    faults, named = {}, 0
    for case, content, _ in retyped(small(unsealed(file)), each):
        file.write_text(json.dumps(content))
        found, fault = tried(lambda: listed_tables(tmp_path))
        if not fault and found.left_out:
            named += 1
            fault = (
                "" if found.left_out[0].startswith(f"{file} is damaged (") else f"{found.left_out}"
            )
            fault = fault or ("" if len(found.records) == 1 else "the other one is not shown")
        faults[case] = fault
    assert not (wrong := listed(faults)), wrong
    assert named >= 8 * each
    file.write_text("[]")
    code, _, err = cli("report", "--runs-dir", tmp_path)
    assert (code, err.count("\n")) == (0, 1)
    expected = "the whole: input should be an object, not []"
    assert err.startswith(f"note: {file} is damaged ({expected}")
    assert "a/table.json is damaged" in (tmp_path / "index.html").read_text()


def small(table: Any) -> Any:
    """A table with one column, two rows and two verdicts."""
    rows = [{**row, "columns": row["columns"][:1]} for row in table["rows"][:2]]
    return {**table, "rows": rows, "verdicts": table["verdicts"][:2]}


def listed_tables(runs: Path) -> tables.Tables:
    """The tables of a folder, after the page has shown them."""
    found = tables.read(runs)
    studies_page.write(runs, found)
    return found


SELECTED = {"chosen": {"model.lr": 0.1}, "tried": 2, "seeds": [0], "point": {}, "runs": ["x"]}


def test_selections_of_other_types_are_named(tmp_path):
    file, faults = tmp_path / SELECTION, {}
    for case, content, _ in retyped({"compare": {"{}": SELECTED}}):
        file.write_text(json.dumps(content))
        faults[case] = tried(lambda: damage_in(tmp_path))[1]
    assert not (wrong := listed(faults)), wrong
    (tmp_path / SELECTION).write_text(json.dumps({"compare": {"{}": {**SELECTED, "tried": "two"}}}))
    assert f"{file} is damaged (compare.{{}}.tried: input should be a valid integer" in damage_in(
        tmp_path
    )


def damage_in(root: Path) -> str:
    """What is said of a damaged selection."""
    try:
        StudyFolder(study(), root).selection  # noqa: B018 (read)
    except DamagedError as error:
        return str(error)
    return ""


ROWS = {"epoch": 1.0, "step": 1, "split": "test", "metric": "loss", "condition": "", "value": 0.5}
COLUMNS = {
    "text for numbers": {"value": "high"},
    "numbers for text": {"metric": 3},
    "lists": {"epoch": [1.0]},
    "times": {"value": pd.Timestamp(0)},
    "truths": {"step": True},
    "bytes": {"split": b"test"},
}


@pytest.mark.parametrize("change", COLUMNS.values(), ids=COLUMNS)
def test_rows_of_a_probe_of_other_types_are_named(tmp_path, change):
    plan = study()
    finished(tmp_path, plan)
    file = probe(tmp_path, plan.runs()[0], "noise", {("test/loss", ""): 0.5})
    pq.write_table(pa.Table.from_pylist([{**ROWS, **change}]), file)
    (line,) = results.load(StudyFolder(plan, tmp_path)).left_out
    assert line.startswith(f"{file} is damaged (column {next(iter(change))}: expected ")
    assert results.load(StudyFolder(plan, tmp_path)).missing == 1
    table = pa.Table.from_pylist([ROWS])
    pq.write_table(table.append_column("value", table["value"]), file)  # a name twice
    assert results.load(StudyFolder(plan, tmp_path)).left_out[0].startswith(f"{file} is damaged (")


def test_a_study_without_costs_says_so(whole, tmp_path):
    root = Path(shutil.copytree(whole, tmp_path / "s"))
    assert "Costs were not measured" not in shown(root)
    (root / COSTS).unlink()
    assert "Costs were not measured: the study's folder has no cost.json of these runs" in shown(
        root
    )
    (root / COSTS).write_text(
        json.dumps([{"run": study().runs()[0].id, "point": {}, "failed": True}])
    )
    assert "Costs were not measured" not in shown(root)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("rounds", []),
            ("machine", 1e300),
            ("machine", {"load": float("nan")}),
            ("machine", {"cores": 0}),
        ),
        ("seconds_added", float("nan")),
        *(("seconds_in_parts", [1e-300]), ("bytes_kept", float("inf"))),
    ],
)
def test_costs_of_no_machine_are_named(whole, tmp_path, key, value):
    root = Path(shutil.copytree(whole, tmp_path / "s"))
    costs = json.loads((root / COSTS).read_text())
    (root / COSTS).write_text(json.dumps([{**cost, key: value} for cost in costs]))
    assert f"{root / COSTS} is damaged (0" in shown(root)


def test_malformed_curves_are_named(tmp_path):
    for content in (
        "",
        "a,b\n1,2\n",
        "\0",
        "figure,panel,line,metric,x,median,low,high,n\n,,,,x,,,,\n",
    ):
        (tmp_path / "curves.csv").write_text(content)
        with pytest.raises(
            DamagedError,
            match=r"curves\.csv is damaged \(.+Let `actlab study report` write it again\.",
        ):
            stored.load_curves(tmp_path / "curves.csv")
