"""``select: {at: last}``: settings selected by the value at the end of each run."""

import json

import pandas as pd
import pytest

from actlab.stages import opening
from actlab.storage.files import DamagedError
from actlab.studies import reading
from actlab.studies.study_folder import StudyFolder
from tiny_study import study_text
from written_runs import write

GRID = "model.activation: [relu, elu], model.optimizer.lr: [1.0e-2, 1.0e-3]"
SELECTED = """\
select: {tune: [model.optimizer.lr], metric: val/loss, at: last}
table:
  - {metric: val/error, at: selected}
  - {metric: val/loss, at: best}
"""
STUDY = study_text(GRID, SELECTED, epochs=3)
STAGES = "stages: [{name: choose, seeds: 1}, {name: compare, seeds: 5-6}]\n"
LAST, BEST = STUDY, STUDY.replace("at: last}", "at: best}")
CURVES = {  # by learning rate: 0.01 is best after two epochs and overfits, 0.001 is best in the end
    0.01: {"val/loss": [0.9, 0.2, 0.8], "val/error": [0.5, 0.25, 0.375]},
    0.001: {"val/loss": [0.9, 0.6, 0.4], "val/error": [0.5, 0.4375, 0.3125]},
}


@pytest.fixture
def command(study):
    def run(text, *words):
        outcome = study(text, *words)
        assert outcome.code == 0, outcome.err
        return outcome.out

    return run


@pytest.fixture
def finished(tmp_path):
    """All runs of the study, with `CURVES`."""
    (tmp_path / "mine.yaml").write_text(STUDY)
    for run in reading.load(str(tmp_path / "mine.yaml")).runs():
        write(tmp_path / "runs/mine", run, CURVES[run.point["model.optimizer.lr"]])


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize(
    ("text", "rate", "values"),
    [(LAST, 0.001, [0.3125, 0.4]), (BEST, 0.01, [0.25, 0.2])],
    ids=["last", "best"],
)
def test_the_last_or_the_best_value_of_each_run_selects(command, text, rate, values):
    first, *_ = json.loads(command(text, "show", "--json"))["rows"]
    assert first["chosen"] == {"model.optimizer.lr": rate}
    assert [column["median"] for column in first["columns"]] == pytest.approx(values)


@pytest.mark.usefixtures("finished")
def test_table_page_and_csv_say_that_last_values_selected(command, tmp_path):
    assert "Chosen per row: lr with the best median over seeds of the last val/loss" in " ".join(
        command(LAST, "show").split()
    )
    command(LAST, "report", "--html")
    page = (tmp_path / "runs/mine/report.html").read_text()
    assert "How lr was chosen" in page
    assert "Median over seeds of the last val/loss reached." in page
    assert "best val/loss reached" not in page
    values = pd.read_csv(tmp_path / "runs/mine/values.csv")
    assert sorted(values["val/loss@last"].unique()) == pytest.approx([0.4, 0.8])


def test_a_metric_evaluated_once_at_the_end_selects_without_a_best_checkpoint(command, tmp_path):
    text = LAST.replace(
        "set:\n", "set:\n  trainer.check_val_every_n_epoch: 3\n  trainer.val_check_interval: 1.0\n"
    ).replace("relu, elu", "relu")
    command(text + STAGES, "run")
    root = tmp_path / "runs/mine"
    for folder in root.glob("*-seed*"):
        rows = pd.read_parquet(folder / "metrics.parquet").query(
            "split == 'val' and metric == 'loss'"
        )
        assert rows["epoch"].tolist() == [3.0]
        assert [path.name for path in (folder / "checkpoints").iterdir()] == ["last.ckpt"]
    (entry,) = json.loads((root / "selection.json").read_text())["compare"].values()
    assert (entry["metric"], entry["at"]) == ("val/loss", "last")
    rates = {folder.name.split("-")[1] for folder in root.glob("*-seed[56]-*")}
    assert rates == {f"lr{entry['chosen']['model.optimizer.lr']:g}"}
    (tmp_path / "mine.yaml").write_text(text.replace("at: last}", "at: best}") + STAGES)
    with pytest.raises(
        DamagedError, match="by the min of the last val/loss, not the min of the best val/loss"
    ):
        opening.opened(StudyFolder(reading.load("mine.yaml"), root))
