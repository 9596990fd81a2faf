"""The notebooks run on what the repository holds, are kept without outputs, and hold every figure."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
STUDIES = sorted((ROOT / "configs/studies").glob("*.yaml"))


def cells(path):
    return json.loads(path.read_text())["cells"]


def code(path):
    return ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["activations", "elu_paper", "gelu_paper"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_and_is_kept_without_outputs(path, monkeypatch):
    """Its cells in order, as a kernel would run them; CI executes them in one."""
    pytest.importorskip("IPython")
    monkeypatch.chdir(path.parent)
    names = {"__name__": "__main__"}
    for source in code(path):
        exec(compile(source, path.name, "exec"), names)
        plt.close("all")
    for cell in cells(path):
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_every_study_of_a_paper_is_in_its_notebook(path):
    paper = {"gelu": "gelu", "soi": "gelu", "elu": "elu"}.get(path.stem.partition("_")[0])
    if paper:
        text = "\n".join(code(ROOT / f"notebooks/{paper}_paper.ipynb"))
        assert f'"{path.stem}"' in text
