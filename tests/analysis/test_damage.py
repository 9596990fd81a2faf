"""Damaged files of a study: named with their remedy, never a traceback, never another result."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import results
from actlab.storage import series
from actlab.storage.files import DamagedError
from actlab.studies.rows import Row, frame_of
from actlab.studies.study_folder import StudyFolder
from damaging import WAYS, damaged
from written_runs import curves_of, finished, study, write


def rows_of(loaded: results.Results) -> dict[str, Any]:
    return {
        run: {key: [part.tolist() for part in recorded[key]] for key in recorded.summaries}
        for run, recorded in loaded.series.items()
    }


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["result.json", "metrics.parquet"])
def test_a_damaged_run_is_named_and_the_others_stay_usable(tmp_path, name, how):
    plan, source = study(), random.Random(how + name)
    whole = finished(tmp_path / "whole", plan).with_rows()
    all_rows = rows_of(whole)
    for number in range(6):
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", root)
        run = plan.runs()[number % 8]
        file = root / run.id / name
        file.write_bytes(damaged(file.read_bytes(), how, source))
        loaded = results.load(StudyFolder(plan, root)).with_rows()
        lost: tuple[str, ...] = ()
        # These may change nothing, or a text in JSON
        if how not in ("bit", "twice") or loaded.left_out:
            (line,) = loaded.left_out
            assert str(root / run.id) in line
            assert "run the study again" in line
            lost = (run.id,)
        assert loaded.results.keys() == whole.results.keys() - lost
        rows = rows_of(loaded)
        if name == "metrics.parquet":
            assert rows == {run: rows for run, rows in all_rows.items() if run not in lost}


def test_a_result_of_another_kind_is_named(tmp_path):
    for content in ("[]", "null", "3", "{}", '{"status": "finished"}'):
        plan = study()
        run = plan.runs()[0]
        write(tmp_path, run, curves_of(run))
        (tmp_path / run.id / "result.json").write_text(content)
        assert "result.json is damaged" in results.load(StudyFolder(plan, tmp_path)).left_out[0]


def test_no_bit_of_a_file_of_rows_changes_what_is_read(tmp_path):
    """Pages have checksums; names, types and numbers of rows, which have none, are checked."""
    rows = [
        Row(e, int(e), *name, 1 / e)
        for e in (1.0, 2.0)
        for name in (("val", "loss", ""), ("", "x", "y=1"))
    ]
    file, source = tmp_path / "rows.parquet", random.Random(0)
    series.write(frame_of(rows), file)
    whole, content = listed(file), file.read_bytes()
    said = []
    for at in range(len(content)):
        file.write_bytes(
            content[:at] + bytes([content[at] ^ 1 << source.randrange(8)]) + content[at + 1 :]
        )
        try:
            assert listed(file) == whole, at
        except DamagedError as error:
            said.append(str(error))
    assert len(said) > len(content) / 4
    assert all(line.startswith(f"{file} is damaged (") and "\n" not in line for line in said)


def listed(file: Path) -> Any:
    """What a file of rows holds, in order."""
    return [(key, *(part.tolist() for part in found)) for key, found in series.read(file).items()]
