"""What is read from the files of a run: names, conditions, probes."""

from pathlib import Path

import pandas as pd
import pytest

from actlab.analysis import results
from actlab.errors import ActlabError
from actlab.studies import probe_files
from actlab.studies.plan import Run, Study
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder
from actlab.studies.schema import ProbePart
from actlab.studies.states import FINISHED
from actlab.studies.study_folder import StudyFolder
from written_runs import one_unit, probe, write


def written(tmp_path: Path) -> tuple[Study, Run, Path]:
    """A study of one run, which has finished; the run, and its folder."""
    plan = one_unit()
    (run,) = plan.runs()
    write(tmp_path, run, {"test/error": [0.5, 0.4], "my_score": [1.0, 2.0]})
    return plan, run, RunFolder(tmp_path, run).path


def test_a_name_is_split_and_metric_or_the_metric_alone(tmp_path):
    plan, run, _ = written(tmp_path)
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert set(loaded.series[run.id].summaries) == {("test/error", ""), ("my_score", "")}
    assert [values.tolist() for values in loaded.series[run.id]["my_score", ""]] == [[1, 2], [1, 2]]
    assert loaded.series[run.id].summaries["test/error", ""] == (0.4, 0.4, 2.0, 0.5, 1.0)


def test_rows_under_a_condition_are_a_series_of_their_own(tmp_path):
    plan = one_unit()
    (run,) = plan.runs()
    folder = RunFolder(tmp_path, run)
    folder.open()
    where = (("layer=2", 0.2), ("", 0.5), ("layer=1", 0.1))
    folder.finish(FINISHED, [Row(1.0, 4, "val", "dead", name, value) for name, value in where])
    frame = pd.read_parquet(folder.path / "metrics.parquet")
    assert list(frame.columns) == ["epoch", "step", "split", "metric", "condition", "value"]
    assert frame["condition"].tolist() == ["", "layer=1", "layer=2"]
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert loaded.metrics.conditions == {"val/dead": ["", "layer=1", "layer=2"]}
    assert loaded.series[run.id]["val/dead", "layer=2"][1].tolist() == [0.2]


def test_a_probe_puts_its_name_in_front(tmp_path):
    plan, run, _ = written(tmp_path)
    probe(tmp_path, run, "noise", {("test/error", "noise=0.5"): 0.7, ("area", ""): 3.0})
    probe(tmp_path, run, "units", {("test/error", ""): 0.1})
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert loaded.series[run.id]["noise/test/error", "noise=0.5"][1].tolist() == [0.7]
    assert loaded.series[run.id]["units/test/error", ""][1].tolist() == [0.1]
    assert loaded.series[run.id]["noise/area", ""][1].tolist() == [3.0]
    assert loaded.series[run.id]["test/error", ""][1].tolist() == [0.5, 0.4]


def test_probes_are_read_in_the_order_of_their_epochs(tmp_path):
    plan, run, folder = written(tmp_path)
    late = probe(tmp_path, run, "late", {("test/error", ""): 0.2}, epoch=2)
    early = probe(tmp_path, run, "early", {("test/error", ""): 0.1}, epoch=1)
    both = probe_files.file_of(folder, "both", [])
    pd.concat([pd.read_parquet(late), pd.read_parquet(early)]).to_parquet(both, index=False)
    loaded = results.load(StudyFolder(plan, tmp_path))
    assert [values.tolist() for values in loaded.series[run.id]["both/test/error", ""]] == [
        [1, 2],
        [0.1, 0.2],
    ]


def test_missing_columns_and_names_taken_twice_are_refused(tmp_path):
    plan, run, _ = written(tmp_path)
    file = probe(tmp_path, run, "noise", {("test/error", ""): 0.1})
    pd.read_parquet(file).drop(columns=["step", "value"]).to_parquet(file)
    (line,) = results.load(StudyFolder(plan, tmp_path)).left_out
    assert f"{file} is damaged (expected the columns " in line
    assert "got epoch, split, metric, condition)" in line
    file.write_text("epoch,value\n1,2\n")
    assert results.load(StudyFolder(plan, tmp_path)).left_out[0].startswith(f"{file} is damaged (")
    file.unlink()
    probe(tmp_path, run, "test", {("error", ""): 0.1})
    with pytest.raises(
        ActlabError, match=r"test-\w+\.parquet holds test/error, which training recorded too"
    ):
        results.load(StudyFolder(plan, tmp_path))


@pytest.mark.parametrize("name", ["noise-v2", "noise"])
def test_a_new_version_of_a_probe_replaces_its_answer(tmp_path, name):
    asking = one_unit(probes=(ProbePart(name=name, class_path="actlab.probes.InputNoise"),))
    (run,) = asking.runs()
    question = probe_files.request_of(asking.probes[0], asking.keep)
    first, second = (
        probe_files.file_of(tmp_path / run.id, name, question, [version]) for version in (4, 5)
    )
    probe_files.write(first, [])
    assert probe_files.answers(tmp_path / run.id, name, question, [4])
    assert not probe_files.answers(tmp_path / run.id, name, question, [5])
    probe_files.write(second, [])
    assert [*first.parent.iterdir()] == [second]
    assert [*probe_files.found_in(tmp_path / run.id)] == [name]


def test_a_probe_that_now_asks_something_else_is_left_out(tmp_path):
    plan, run, _ = written(tmp_path)
    probe(tmp_path, run, "noise", {("test/error", "noise=1"): 0.7})
    assert "noise/test/error" in results.load(StudyFolder(plan, tmp_path)).metrics.conditions
    loaded = results.load(
        StudyFolder(
            one_unit(probes=(ProbePart(name="noise", class_path="actlab.probes.InputNoise"),)),
            tmp_path,
        )
    )
    assert ["in 1 run is left out" in line for line in loaded.left_out] == [True]
    assert "noise/test/error" not in loaded.metrics.conditions


def test_what_an_unfinished_run_left_is_not_read(tmp_path):
    plan, _, folder = written(tmp_path)
    (folder / "result.json").unlink()
    assert results.load(StudyFolder(plan, tmp_path)).series == {}
