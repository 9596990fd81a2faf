"""The notebooks run on what the repository holds, are kept executed, and hold every figure."""

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


# The papers' notebooks draw kept results, which takes seconds; tests/reports/test_kept.py draws some.
@pytest.mark.parametrize(
    "name",
    ["activations", *(pytest.param(f"{name}_paper", marks=pytest.mark.slow) for name in ("elu", "gelu"))],
)
def test_a_notebook_runs(name, monkeypatch):
    """Its cells in order, as a kernel would run them; CI executes them in one."""
    pytest.importorskip("IPython")
    monkeypatch.chdir(ROOT / "notebooks")
    names = {"__name__": "__main__"}
    for source in code(ROOT / f"notebooks/{name}.ipynb"):
        exec(compile(source, name, "exec"), names)
        plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_is_kept_executed(path):
    """In order, without an error, with a picture for each figure that it draws (`make notebooks`)."""
    found = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    for cell in found:
        kinds = {kind for output in cell["outputs"] for kind in output.get("data", {"error": 1})}
        source = "".join(cell["source"])
        assert "error" not in kinds
        assert "image/png" in kinds or "draw(" not in source
        assert not any("ExecuteTime" in key or key == "execution" for key in cell["metadata"])


def test_every_study_of_a_paper_is_in_its_notebook():
    papers = {"gelu": "gelu", "soi": "gelu", "elu": "elu"}
    texts = {name: "\n".join(code(ROOT / f"notebooks/{name}_paper.ipynb")) for name in ("gelu", "elu")}
    named = {path.stem: papers.get(path.stem.partition("_")[0]) for path in STUDIES}
    assert [stem for stem, paper in named.items() if paper and f'"{stem}"' not in texts[paper]] == []
