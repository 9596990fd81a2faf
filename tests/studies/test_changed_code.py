"""A study whose user files change: comments do not count, code does, nothing needs deletion."""

import pytest

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


def bytes_in(root, *patterns):
    """The content of each file of some patterns."""
    return {path: path.read_bytes() for pattern in patterns for path in root.rglob(pattern)}


@pytest.fixture
def study(succeed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beside_mine.py").write_text(BESIDE)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "tiny.yaml").write_text(TEXT)

    def run(*words):
        outcome = succeed("study", words[0], "tiny.yaml", *words[1:])
        return outcome.out

    return run


def test_comments_do_not_count_and_code_does(study, tmp_path):
    root, mine = tmp_path / "runs/tiny", tmp_path / "mine.py"
    study("run")
    before = bytes_in(root, "*.parquet", "result.json", "selection.json", "cost.json")
    mine.write_text(MINE.replace("    pass", '    """Of today."""\n\n    pass  # and here'))
    assert study("plan").count("finished  ") == 8
    study("run")
    assert bytes_in(root, "*.parquet", "result.json", "selection.json", "cost.json") == before
    beside = tmp_path / "beside_mine.py"
    beside.write_text(BESIDE.replace("Softplus", "Hardswish"))
    assert (
        "2 finished runs, because beside_mine.py of ./mine.py:Mine has been changed since"
        in study("plan")
    )
    beside.write_text(BESIDE)
    mine.write_text(MINE.replace("    pass", "    threshold = 3"))
    for command in ("plan", "status", "clean"):
        assert "stage compare" in study(command) or command == "clean"
    assert "2 finished runs, because ./mine.py:Mine has been changed since" in study("plan")
    assert "deleted 4 items" in study("clean", "--yes")
    assert "stage compare: 4 runs, 2 finished, 2 to run" in study("run")
    assert study("plan").count("finished  ") == 8


def test_other_settings_are_named_and_no_file_that_is_as_it_was(study, tmp_path):
    text = study_text('model.activation: [relu, "./mine.py:Mine"]', seeds=1, epochs=1)
    (tmp_path / "tiny.yaml").write_text(text)
    study("run")
    longer = ["--set", "trainer.max_epochs=2"]
    settings = "with other settings: trainer.max_epochs was 1, is 2\n"
    for command in ("plan", "status"):
        assert f"ignored in runs/tiny: 2 finished runs {settings}" in study(command, *longer)
    assert "2 runs will stay" in study("clean", *longer)
    (tmp_path / "mine.py").write_text(MINE.replace("    pass", "    threshold = 3"))
    changed = "1 finished run, because ./mine.py:Mine has been changed since"
    assert f"{changed}; 1 finished run {settings}" in study("plan", *longer)
