"""Every study that travels with actlab runs on the samples, to its table and figures."""

from pathlib import Path

import pytest

from actlab.studies import reading

pytestmark = pytest.mark.tries_stacks

STUDIES = sorted((Path(__file__).parents[2] / "configs/studies").glob("*.yaml"))
BRIEF = ("seeds=1", "model.optimizer.lr=1e-3", "trainer.limit_train_batches=2")


def test_there_are_studies():
    assert len(STUDIES) > 10


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_a_study_runs_on_samples(path, cli, tmp_path):
    """One seed at one learning rate; ``.ci/smoke`` runs whole grids."""
    words = [word for change in BRIEF for word in ("--set", change)]
    outcome = cli("study", "run", path, "--smoke", "--report", *words, "--runs-dir", tmp_path)
    assert outcome.code == 0, outcome.err
    assert not [said for said in ("in a stack", "a trial of", "no checkpoint keeps") if said in outcome.out]
    root = tmp_path / f"{path.stem}-smoke"
    assert len(list(root.glob("*/result.json"))) >= len(reading.load(path, smoke=True, overrides=BRIEF).runs())
    assert not list(root.glob("*/failed.json"))
    assert (root / "table.md").stat().st_size
    assert len(list((root / "figures").glob("*.png"))) >= len(reading.load(path).figures)
