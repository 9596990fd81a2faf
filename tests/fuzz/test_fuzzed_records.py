"""Records by which a study resumes, with values of every other type: named; no traceback, no hang.

`tests/analysis/test_record_types.py` has those that are shown.
"""

import json
from functools import partial

import pytest

from actlab.engines import packing, settings, trials
from actlab.errors import ActlabError
from actlab.storage.logger_ids import ensure_id
from actlab.studies import reading, stacks
from actlab.studies.study_folder import StudyFolder
from fuzzing import FINISHED, listed, mistake, retyped, tried

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600, method="thread")]


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    """A finished study in the current folder; runs a command of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(FINISHED)
    cli("study", "run", "mine.yaml", "--html").succeeded()
    return lambda command: cli("study", command, "mine.yaml")


def test_records_by_which_a_study_resumes(study, tmp_path, monkeypatch):
    """The files that code opens, graphs, trials, stacks, why a run failed, and a logger's id."""
    root, faults = tmp_path / "runs/mine", {}
    plan = reading.load("mine.yaml")
    runs = plan.runs()
    readers = {
        "opened.json": (
            {"a part": ["a.csv"]},
            lambda root: StudyFolder(plan, root).with_opened_files,
        ),
        "engine.json": (
            {"graphs": False},
            lambda root: settings.decide(root, len(runs), 1, None, True),
        ),
        "trials.json": (
            {"together a": {"verdict": "agree", "reason": "", "versions": {}}},
            lambda root: trials.are_equal(root, "a"),
        ),
        f"stacks/{stacks.id_of([runs[0].id])}/members.json": (
            {"members": [runs[0].id]},
            lambda root: packing.begun(root, runs, {runs[0].id}),
        ),
        "logger.json": ({"id": "abc"}, ensure_id),
    }
    for name, (content, read) in readers.items():
        for case, changed, _ in retyped(content):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(json.dumps(changed))
            faults[name, case] = tried(partial(_error_of, read, root))[1]
    failed = root / runs[0].id / "failed.json"
    (failed.parent / "result.json").unlink()
    for case, changed, _ in retyped({"id": "x", "error": "of an author"}):
        failed.write_text(json.dumps(changed))
        outcome, fault = tried(lambda: study("plan"))
        faults["failed.json", case] = fault or mistake(outcome)
    assert not (wrong := listed(faults)), wrong
    print(f"{len(faults)} cases")
    assert len(faults) >= 200


def _error_of(read, root):
    try:
        read(root)
    except ActlabError as error:
        return str(error)
    return ""
