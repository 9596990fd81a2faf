"""The test set's own error beside mean losses, from command to table; values without an error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actlab.analysis.comparison import table_of
from actlab.analysis.results import load
from actlab.reports import tables
from actlab.studies.plan import Selection
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, finished, study, write

STUDY = """\
base: gpt_plain
set:
  data.sample: true
  data.dataset: null
  data.context: 8
  data.windows: 12
  data.eval_batch_size: 5
  data.updates_per_epoch: 2
  model.network.width: 8
  model.network.blocks: 1
  trainer.max_epochs: 4
grid: {model.activation: [gelu, relu]}
reference: gelu
seeds: 3
table:
  - {metric: test/loss, at: last}
  - {metric: test/bits_per_byte, at: last}
  - {metric: test/perplexity, at: last}
  - {metric: val/loss, at: best}
"""


def test_a_study_of_texts_prints_the_error_of_its_windows(
    cli, succeed: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.yaml").write_text(STUDY)
    succeed("study", "run", "text.yaml", "--jobs", "0")
    root = tmp_path / "runs/text"
    results = [json.loads(path.read_text()) for path in sorted(root.glob("*/result.json"))]
    errors: dict[str, list[dict[str, float]]] = {"gelu": [], "relu": []}
    for result in results:
        kept = json.loads((root / result["id"] / "matrices.json").read_text())
        for split in ("val", "test"):
            windows = np.array(kept[f"{split}/loss_by_sample"])
            assert windows.shape == (12,)
            assert result["summary"][f"{split}/loss"][""]["last"] == pytest.approx(
                windows.mean(), abs=1e-5
            )
            found = result["sampling_errors"][f"{split}/loss"]
            assert found == pytest.approx(windows.std(ddof=1) / 12**0.5, abs=1e-5)
        errors[result["point"]["model.activation"]].append(result["sampling_errors"])
    rows = json.loads((root / "table.json").read_text())["rows"]
    for row in rows:
        *of_test, best = row["columns"]
        for column in of_test:
            of_runs = [
                of_run[column["metric"]] for of_run in errors[row["point"]["model.activation"]]
            ]
            assert column["sampling_error"] == pytest.approx(float(np.median(of_runs)))
        assert of_test[1]["sampling_error"] == pytest.approx(
            of_test[0]["sampling_error"] / np.log(2)
        )
        assert best["sampling_error"] is None
    shown = f"{np.median([of_run['test/loss'] for of_run in errors['relu']]):#.3g}"
    page = " ".join(cli("study", "show", "text.yaml").out.split())
    assert shown in page
    assert (
        "Test set ±: standard error of a median from the spread over samples, sentences or tweets."
        in page
    )


PLAN = study(
    grids=({ACT: ["gelu", "relu"]},),
    select=Selection(),
    seeds=(0, 1, 2),
    table=tuple({"metric": "test/loss", "at": at} for at in ("last", "best", 2, "selected")),
)


def test_the_error_of_a_row_is_the_median_over_its_runs_after_training(tmp_path: Path) -> None:
    """A run of an earlier version has none; the other values are not of the last evaluation."""
    for run in PLAN.runs():
        facts: dict[str, Any] = (
            {} if run.seed == 2 else {"sampling_errors": {"test/loss": 0.01 * (1 + run.seed)}}
        )
        write(tmp_path, run, {"test/loss": [2.0, 1.0], "val/loss": [2.0, 1.0]}, **facts)
    loaded = load(StudyFolder(PLAN, tmp_path))
    for row in table_of(loaded).rows:
        assert [cell.sampling_error for cell in row.columns] == [
            pytest.approx(0.015),
            None,
            None,
            None,
        ]
        shown = [tables.number(cell.sampling_error, cell) for cell in row.columns]
        assert shown[0] == "0.0150"
    known = "from the spread over samples, sentences or tweets. Both"
    assert any(known in note for note in table_of(loaded).footnotes)


def test_runs_without_errors_and_diverged_medians_print_none(tmp_path: Path) -> None:
    curves = {"test/loss": [2.0, 1.0], "val/loss": [2.0, 1.0]}
    for folder, given in (("old", {}), ("diverged", {"sampling_errors": {"test/loss": 0.01}})):
        bad = lambda run, all_of=folder: all_of == "diverged" and run.seed > 0  # noqa: E731
        loaded = finished(tmp_path / folder, PLAN, curves, bad, **given)
        assert not [
            cell for row in table_of(loaded).rows for cell in row.columns if cell.sampling_error
        ]
        assert not [note for note in table_of(loaded).footnotes if note.startswith("Test set")]


def test_shares_and_losses_are_named_in_one_note(tmp_path: Path) -> None:
    table = ({"metric": "test/error", "at": "last"}, {"metric": "test/loss", "at": "last"})
    plan = study(grids=({ACT: ["gelu", "relu"]},), select=Selection(), table=table)
    facts: dict[str, Any] = {"scored": {"test": 100}, "sampling_errors": {"test/loss": 0.01}}
    curves = {"test/error": [0.1], "test/loss": [1.0], "val/loss": [1.0]}
    loaded = finished(tmp_path / "alike", plan, curves, **facts)
    share, loss = table_of(loaded).rows[0].columns
    assert [share.sampling_error, loss.sampling_error] == pytest.approx([0.03, 0.01])
    (note,) = [note for note in table_of(loaded).footnotes if note.startswith("Test set")]
    assert (
        "from the number of samples, 100, or from the spread over samples, sentences or tweets."
        in note
    )


def test_a_share_of_grouped_samples_has_the_error_that_was_recorded(tmp_path: Path) -> None:
    plan = study(
        grids=({ACT: ["gelu"]},),
        select=Selection(),
        table=({"metric": "test/error", "at": "last"},),
    )
    facts: dict[str, Any] = {"scored": {"test": 100}, "sampling_errors": {"test/error": 0.05}}
    loaded = finished(tmp_path, plan, {"test/error": [0.1], "val/loss": [1.0]}, **facts)
    assert table_of(loaded).rows[0].columns[0].sampling_error == pytest.approx(0.05)
    (note,) = [note for note in table_of(loaded).footnotes if note.startswith("Test set")]
    assert "samples, 100" not in note
