"""The public API, as scripts and notebooks use it."""

import importlib
import os
import pydoc
import subprocess
import sys
import traceback
import types
from typing import Any

import pandas as pd
import pytest

import actlab
from actlab.analysis import looks, results
from actlab.api import StudyResults
from actlab.errors import ActlabError
from actlab.studies.plan import Selection
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, LR, study, write

UNIT = """
import torch


class Mine(torch.nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.5 * x)


def double(x):
    return 2 * x
"""
SCRIPT = """
import actlab
{unit}

if __name__ == "__main__":
    found = actlab.run_study("demo", smoke=True, seeds=1, activations=[Mine, double])
    assert list(found.table["activation"])[-2:] == ["Mine", "double"], found.table
    assert found.failed == 0
"""


CHANGES: dict[str, Any] = {
    **{"smoke": True, "settings": {"model.activation": ["gelu", "elu"]}},
    **{"activations": ["./api_units.py:Mine"], "reference": "gelu"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an activation of its own, and the runs of a study."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "api_units.py").write_text(UNIT)
    return folder


@pytest.fixture
def finished(folder, monkeypatch):
    """The study's results; the first test that asks trains the runs."""
    monkeypatch.chdir(folder)
    return actlab.run_study("demo", jobs=0, **CHANGES)


def test_every_public_name_exists_and_has_help():
    text = pydoc.plain(pydoc.render_doc(actlab))
    for name in actlab.__all__:
        assert getattr(actlab, name).__doc__
        assert name in text
    with pytest.raises(AttributeError, match="no attribute 'run_studdy'"):
        actlab.run_studdy  # noqa: B018


def test_a_study_runs_and_gives_frames_and_figures(finished):
    assert list(finished.table["activation"]) == ["gelu", "elu", "Mine"]
    error = finished.table["test/error@last"]
    assert error.between(0, 1).all()
    assert (finished.table["test/error@last low"] <= error).all()
    assert finished.values.groupby("model.activation").size().eq(2).all()
    ours = finished.values[finished.values["model.activation"] == "gelu"][
        "test/error@last"
    ].median()
    assert error[0] == pytest.approx(ours)
    assert [figure.axes[0].get_title() for figure in finished.figures.values()] != []
    assert "test error %" in str(finished)
    shown = finished._repr_html_()
    assert "<table" in shown
    assert shown.count("<svg") == len(finished.figures)
    assert (finished.root / "table.json").is_file()  # which reports read
    for name in finished.values["run"]:
        assert (finished.root / name / "checkpoints/last.ckpt").is_file()


def test_the_seed_of_a_script_stays_its_own(tmp_path, monkeypatch):
    for value in ("7", None):
        monkeypatch.setenv("PL_GLOBAL_SEED", value) if value else monkeypatch.delenv(
            "PL_GLOBAL_SEED"
        )
        one: dict[str, Any] = {"smoke": True, "settings": {"model.activation": "gelu"}}
        actlab.run_study("demo", jobs=0, runs_dir=tmp_path, **one, seeds=1 + (value is None))
        assert os.environ.get("PL_GLOBAL_SEED") == value


def test_the_same_call_trains_nothing_again(finished, capsys):
    again = actlab.run_study("demo", **CHANGES)
    assert "6 finished, 0 to run" in capsys.readouterr().out
    read = actlab.results(actlab.load_study("demo", **CHANGES))
    for other in (again, read):
        pd.testing.assert_frame_equal(other.table, finished.table)


@pytest.mark.slow  # fifteen seconds, most of them imports in three processes
def test_classes_and_functions_of_a_script_are_trained(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.format(unit=UNIT))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_a_notebook_has_defined_is_rejected(monkeypatch):
    shell = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", shell)
    exec(UNIT, vars(shell))
    with pytest.raises(ActlabError, match=r"%%writefile FILE.py"):
        actlab.load_study("demo", activations=[shell.Mine])
    with pytest.raises(ActlabError, match=r"top level of a module"):
        actlab.load_study("demo", activations=[lambda x: x])


def test_activations_take_every_form(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    mine = importlib.import_module("api_units")
    one = actlab.load_study("demo", activations="silu", reference={"name": "elu", "alpha": 0.5})
    assert {run.point["model.activation"] for run in one.runs()} == {
        "gelu",
        "elu",
        "relu",
        "soi",
        "silu",
    }
    assert one.reference == {"name": "elu", "alpha": 0.5}
    replaced = actlab.load_study(
        "demo", settings={"model.activation": ["gelu", mine.Mine]}, reference=mine.Mine
    )
    assert {run.point["model.activation"] for run in replaced.runs()} == {"gelu", "api_units:Mine"}
    assert replaced.reference == "api_units:Mine"
    paper = actlab.load_study("gelu_mnist_classifier", reference="gelu")
    assert paper.reference == "gelu_tanh"
    assert "Reference: gelu_tanh, GELU's tanh form, because the grid lacks gelu." in paper.notes


def test_values_keep_the_label_none(tmp_path):
    plan = study(grids=({ACT: ["relu"], LR: [None, 0.1]},), select=Selection())
    for run in plan.runs():
        write(tmp_path, run, {"test/error": [0.1]})
    assert set(StudyResults((results.load(StudyFolder(plan, tmp_path)),)).values[LR]) == {
        "None",
        "0.1",
    }


def test_a_verdict_on_a_search_is_a_look_from_python_too(tmp_path, monkeypatch):
    monkeypatch.setattr("actlab.engines.running.run", lambda *given: 0)
    more = {"grids": ({ACT: ["gelu", "relu"]},), "select": Selection(), "seeds": tuple(range(8))}
    plan = study(question="q", **more)
    for run in plan.runs():
        write(
            tmp_path / "s",
            run,
            {"test/error": [0.1 + 0.01 * run.seed + 0.2 * (run.point[ACT] == "relu")]},
        )
    assert [one.outcome for one in actlab.run_study(plan, runs_dir=tmp_path).verdicts] == ["better"]
    assert [look.get("question") for look in looks.read(StudyFolder(plan, tmp_path / "s"))] == ["q"]


def test_an_argument_of_another_function_is_named_in_one_traceback():
    api: Any = actlab
    with pytest.raises(
        ActlabError, match=r"load_study: unknown argument runs_dir\. Allowed: study, "
    ) as found:
        api.load_study("demo", runs_dir="x")
    assert "pydantic" not in "".join(traceback.format_exception(found.value))


def test_settings_seeds_and_parameters():
    study = actlab.load_study(
        "demo",
        seeds=[3, 5],
        settings={"trainer.max_epochs": 2},
        activations=[{"name": "elu", "alpha": 0.5}],
    )
    runs = study.runs()
    assert study.more_seeds.format(9) == "seeds=9"  # what the verdict advises
    assert {run.seed for run in runs} == {3, 5}
    assert {run.epochs for run in runs} == {2}
    assert runs[-1].point["model.activation"] == {"name": "elu", "alpha": 0.5}
    assert len(actlab.load_study("demo", seeds="4-7").runs()) == 16
    staged = actlab.load_study("gelu_mnist_classifier", seeds={"choose": 3, "compare": [7, 9]})
    assert [stage.seeds for stage in staged.stages] == [(0, 1, 2), (7, 9)]
    assert {run.seed for run in actlab.load_study("demo", seeds=range(2, 5)).runs()} == {2, 3, 4}
    with pytest.raises(ActlabError, match=r"does not accept seeds. Pass them to load_study"):
        actlab.results(study, seeds=2)


@pytest.mark.parametrize(
    ("piped", "activations"),
    [(False, []), pytest.param(True, ["./mine.py:mine"], marks=pytest.mark.slow)],
    ids=["file", "standard input, own activation"],
)
def test_scripts_need_no_guard(tmp_path, programs, piped, activations):
    """As ``python script.py`` and as ``python -``; it runs once, and this process stays light."""
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef mine(x):\n    return torch.relu(x) * 1.1\n"
    )
    program = programs / "unguarded.py"
    words = [sys.executable, "-" if piped else program, "runs", *activations]
    text = program.read_text() if piped else None

    done = subprocess.run(
        words, input=text, capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begins") == 1
    assert done.stdout.splitlines()[-1] == f"0 {1 + len(activations)} False"
