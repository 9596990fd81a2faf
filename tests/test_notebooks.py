"""The notebooks run on what the repository holds, are kept executed, and hold every figure."""

import ast
import contextlib
import io
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


def outcome(source, names):
    """What a kernel shows of a cell as text, by kind: the stream, and its last line's value."""
    from IPython.lib.pretty import pretty

    body = ast.parse(source)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    stream = io.StringIO()
    value = None
    with contextlib.redirect_stdout(stream):
        exec(compile(body, "cell", "exec"), names)
        if last:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    shown = {"stream": stream.getvalue()} if stream.getvalue() else {}
    if value is not None and not source.rstrip().endswith(";"):
        shown["text/plain"] = pretty(value)
        if hasattr(value, "_repr_markdown_"):
            shown["text/markdown"] = value._repr_markdown_()
    return shown


def stored(cell):
    """The text that a notebook shows below a cell, by kind."""
    shown = {}
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            shown["stream"] = "".join(output["text"])
        elif output["output_type"] == "execute_result":
            data = {
                kind: "".join(text)
                for kind, text in output["data"].items()
                if kind.startswith("text/")
            }
            shown |= {kind: text for kind, text in data.items() if kind != "text/html"}
    return shown


# The papers' notebooks draw kept results, which takes seconds; tests/reports/test_kept.py draws
# some.
@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        *(("activations", True), ("elu_paper", False), ("gelu_paper", False)),
        *(pytest.param(f"{name}_paper", True, marks=pytest.mark.slow) for name in ("elu", "gelu")),
    ],
)
def test_a_notebook_shows_what_its_cells_print(name, drawn, monkeypatch):
    """Its cells in order, as a kernel runs them; without figures of results unless ``drawn``."""
    pytest.importorskip("IPython")
    monkeypatch.chdir(ROOT / "notebooks")
    names = {"__name__": "__main__"}
    compared = 0
    for cell in cells(ROOT / f"notebooks/{name}.ipynb"):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and (drawn or "stored.draw(" not in source):
            shown = outcome(source, names)
            assert stored(cell) == shown, f"`make notebooks` executes {name} again:\n{source}"
            compared += bool(shown)
            plt.close("all")
    assert compared


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_is_kept_executed(path):
    """In order, without an error, with a picture for each figure drawn (`make notebooks`)."""
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
    texts = {
        name: "\n".join(code(ROOT / f"notebooks/{name}_paper.ipynb")) for name in ("gelu", "elu")
    }
    named = {path.stem: papers.get(path.stem.partition("_")[0]) for path in STUDIES}
    assert [
        stem for stem, paper in named.items() if paper and f'"{stem}"' not in texts[paper]
    ] == []
