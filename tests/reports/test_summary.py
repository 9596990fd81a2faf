"""The end of ``study run``: what ran, the verdict, one table, short notes."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.analysis.power import detectable
from actlab.analysis.study_table import StudyTable
from actlab.reports import summary, terminal
from actlab.studies.plan import Selection
from actlab.studies.states import FINISHED
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, study, write

ERRORS = {  # test errors in percent, a column a seed
    "relu": [9.1, 9.6, 8.8, 9.4, 9.0, 9.7, 9.2, 8.9, 9.3, 9.5],
    "gelu": [7.9, 11.6, 10.2, 8.5, 7.4, 11.9, 10.1, 8.0, 10.9, 8.3],
    "elu": [7.2, 7.5, 7.1, 7.6, 7.0, 7.7, 7.4, 6.8, 7.3, 7.4],
}
TABLE = (
    {"metric": "test/error", "percent": True, "margin": 0.01, "chance": 0.9},
    {"metric": "val/loss", "at": "best"},
)


def printed(results_of: Any) -> str:
    text = io.StringIO()
    summary.print_summary(table_of(results_of), results_of, text)
    return text.getvalue()


def errors_of(root: Path, seeds: int, **changes: Any) -> results.Results:
    """The results of a study with `ERRORS`."""
    plan = study(
        grids=({ACT: list(ERRORS)},),
        reference="relu",
        select=Selection(),
        seeds=tuple(range(seeds)),
        table=TABLE,
        **changes,
    )
    for run in plan.runs():
        error = ERRORS[run.point[ACT]][run.seed] / 100
        curves = {"test/error": [error], "val/loss": [3 * error]}
        write(root, run, curves, status=FINISHED, scored={"test": 1000})
    return results.load(StudyFolder(plan, root))


def test_the_verdict_stands_before_the_table(tmp_path: Path) -> None:
    lines = printed(errors_of(tmp_path, 10)).splitlines()
    assert lines[2] == "30 of 30 runs finished. 3 activations, 10 seeds (0–9)."
    verdict = lines.index("Verdict on test error against relu, 10 seeds:")
    assert re.match(
        r"  elu +better +−1\.95 points \[−2\.\d+, −1\.\d+\] +p = 0\.00", lines[verdict + 1]
    )
    gelu = lines[verdict + 2]
    assert re.match(
        r"  gelu +no significant difference +\+0\.23 points \[−1\.\d+, \+1\.\d+\] +p = ", gelu
    )
    head = next(number for number, line in enumerate(lines) if line.startswith("activation"))
    assert head > verdict + 2
    assert len(lines) <= 22


def test_rows_are_sorted_by_the_primary_metric_with_the_mean_difference(tmp_path: Path) -> None:
    text = printed(errors_of(tmp_path, 3))
    (rule,) = [number for number, line in enumerate(text.splitlines()) if line.startswith("──")]
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()[rule + 1 : rule + 4]]
    assert rows == [
        ["elu", "7.20 [7.10, 7.50]", "−1.90", "0.216"],
        ["relu", "9.10 [8.80, 9.60]", "-", "0.273"],
        ["gelu", "10.20 [7.90, 11.60]", "+0.73", "0.306"],
    ]


def test_too_few_seeds_say_how_many_are_needed(tmp_path: Path) -> None:
    text = printed(errors_of(tmp_path, 3))
    assert (
        "Verdict: none. 3 seeds are too few to reach p < 0.05 with 2 comparisons; it takes 6."
        in text
    )
    assert re.search(
        r"^  To detect a difference of 1\.00 points with 80 % power: --seeds \d+$", text, re.M
    )


def test_the_power_of_the_runs_is_said(tmp_path: Path) -> None:
    loaded = errors_of(tmp_path, 10)
    table: StudyTable = table_of(loaded)
    (gelu,) = [row for row in table.rows if table.label(row) == "gelu"]
    spread = gelu.primary.paired.sd
    size = 100 * (detectable(10, 2) or 0) * (spread or 0)
    assert f"10 pairs detect {size:.2f} points with 80 % power" in printed(loaded)


def test_other_comparisons_have_a_heading(tmp_path: Path) -> None:
    loaded = errors_of(tmp_path, 10, added=("elu",))
    lines = printed(loaded).splitlines()
    verdict = lines.index("Verdict on test error against relu, 10 seeds:")
    assert lines[verdict + 1].startswith("> elu")
    assert lines[verdict + 2] == "Other comparisons:"
    assert lines[verdict + 3].startswith("  gelu")
    assert not any("Secondary" in line for line in lines)
    assert any(line.startswith("> elu") for line in lines[verdict + 4 :])  # of the table


def test_columns_that_do_not_fit_are_counted(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = written()
    assert "val loss" in printed(loaded)
    monkeypatch.setattr(terminal, "PIPE", 60)
    text = printed(loaded)
    assert "val loss" not in text
    assert "1 more metric: table.md" in text


def test_notes_of_the_study_are_printed(written: Any) -> None:
    text = printed(written())
    assert "24 of 24 runs finished." in text
    assert "A note." in text.splitlines()
    assert "Published: a paper." in text


def test_a_study_without_columns_has_no_verdict(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(globals(), "TABLE", ())
    assert "9 of 9 runs finished." in printed(errors_of(tmp_path, 3))
