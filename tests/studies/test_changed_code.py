"""A study of a user's files that change: comments do not count, code does, and nothing is deleted by hand."""

import contextlib
import shutil

import pytest

from actlab.analysis import looks
from actlab.stages import opening, search
from actlab.storage import contents
from actlab.studies import reading
from actlab.studies.folders import StudyFolder
from actlab.studies.formats import Selected
from actlab.studies.plan import Study
from tiny_study import study_text

MINE = """\
from beside_mine import Base

from actlab.probes import Measured


class Mine(Base):
    pass


class Probe:
    def __call__(self, subject, data):
        found = subject.measured(next(iter(data.test_dataloader())), shared=True)
        yield Measured("test", "loss", "", found["loss"].values.mean(-1))
"""
BESIDE = "from torch.nn import Softplus as Base\n"
TEXT = study_text(
    'model.activation: [relu, "./mine.py:Mine"], model.optimizer.lr: [3.0e-2, 1.0e-3]',
    "select: {tune: [model.optimizer.lr]}\n"
    "stages: [{name: choose, seeds: 1}, {name: compare, seeds: 5-6}]\n"
    "probes: [{name: mine, class_path: mine.Probe, at: last}]\n",
    epochs=1,
)


@contextlib.contextmanager
def earlier_version():
    """Count every byte of code, as actlab did."""
    code = contents._code
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "_code", lambda source: code(source)._replace(digest=""))
        patch.setattr(contents, "digests_of_code", lambda text: {})  # of each file
        yield


def bytes_in(root, *patterns):
    """The content of each file of some patterns."""
    return {path: path.read_bytes() for pattern in patterns for path in root.rglob(pattern)}


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beside_mine.py").write_text(BESIDE)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "tiny.yaml").write_text(TEXT)

    def run(*words):
        outcome = cli("study", words[0], "tiny.yaml", *words[1:])
        assert outcome.code == 0, outcome.err
        return outcome.out

    return run


def test_a_study_that_an_earlier_version_began_goes_on(study, tmp_path):
    """Its runs keep their ids in selection, costs and probes; comments added later make other runs of these."""
    root = tmp_path / "runs/tiny"
    with earlier_version():
        study("run", "--seeds", "compare=5-5")
    before = bytes_in(root, "selection.json", "*.parquet", "result.json")
    again = study("run")
    assert "stage choose: 4 runs, 4 finished, 0 to run" in again
    assert "stage compare: 4 runs, 2 finished, 2 to run" in again
    assert before.items() <= bytes_in(root, "*.json", "*.parquet").items()
    assert "0 to run" in study("run")
    (tmp_path / "elsewhere/tiny").mkdir(parents=True)
    shutil.copy(root / "selection.json", tmp_path / "elsewhere/tiny")
    assert study("plan", "--stage", "compare", "--runs-dir", "elsewhere").count("to run  ") == 4
    assert study("plan").count("finished  ") == 8
    (tmp_path / "mine.py").write_text(f"# A comment\n{MINE}")
    plan = study("plan")
    assert plan.count("to run  ") == 2
    changed = "2 finished runs, because ./mine.py:Mine, or what it imports, has been changed since"
    assert changed in plan
    assert changed in study("status")
    assert "3 finished runs among them" in study("clean")  # not that of the code as it is


def test_comments_do_not_count_and_code_does(study, tmp_path):
    root, mine = tmp_path / "runs/tiny", tmp_path / "mine.py"
    study("run")
    before = bytes_in(root, "*.parquet", "result.json", "selection.json", "cost.json")
    mine.write_text(MINE.replace("    pass", '    """Of today."""\n\n    pass  # and here'))
    assert study("plan").count("finished  ") == 8
    assert "measures costs" not in study("status")
    study("run")
    assert bytes_in(root, "*.parquet", "result.json", "selection.json", "cost.json") == before
    beside = tmp_path / "beside_mine.py"
    beside.write_text(BESIDE.replace("Softplus", "Hardswish"))
    assert "2 finished runs, because beside_mine.py of ./mine.py:Mine has been changed since" in study("plan")
    beside.write_text(BESIDE)
    mine.write_text(MINE.replace("    pass", "    threshold = 3"))
    for command in ("plan", "status", "clean"):
        assert "stage compare" in study(command) or command == "clean"
    assert "2 finished runs, because ./mine.py:Mine has been changed since" in study("plan")
    assert "deleted 4 items" in study("clean", "--yes")
    assert "stage compare: 4 runs, 2 finished, 2 to run" in study("run")
    assert study("plan").count("finished  ") == 8


def test_a_look_that_an_earlier_version_recorded_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "tiny.yaml").write_text(
        study_text(
            'model.activation: [relu, "./mine.py:Mine"]',
            "stages: [{name: choose, seeds: 1, trials: 1, search: {model.optimizer.lr: 1e-3..1e-2}},"
            " {name: compare, seeds: 5-6}]\n",
        )
    )

    def compared() -> Study:
        study = reading.load("tiny.yaml")
        asked, grid = study.stages[0].search, opening.whole(study, study.stages[0])
        assert asked
        nothing: Selected = {"chosen": {}, "tried": 1, "seeds": []}
        return search.compared(grid, grid, [(side, nothing) for side in search.sides(grid, asked)])

    with earlier_version():
        looks.record(StudyFolder(compared(), tmp_path), ["better"])
        assert (
            looks.earlier(looks.read(StudyFolder(compared(), tmp_path)), StudyFolder(compared(), tmp_path)) == 0
        )
    question = looks.read(StudyFolder(compared(), tmp_path))[0].get("question", "")
    other = looks.Look(seeds=[7], runs=["x-0123456789abcdef"], question=question)
    assert looks.earlier([other], StudyFolder(compared(), tmp_path)) == 1
