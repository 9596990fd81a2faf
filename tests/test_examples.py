"""Each example runs as a script, and the README of the folder lists it."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
STUDIES = sorted(FOLDER.glob("*.yaml"))
NOTEBOOKS = [path for path in SCRIPTS if path.read_text(encoding="utf-8").count("\n# %%\n")]
README = (FOLDER / "README.md").read_text(encoding="utf-8")
PATIENCE = 240  # seconds on a busy machine


def stem(path):
    return path.stem


def run(*words, cwd, **variables):
    """Standard output of a command that must succeed without warnings of its own."""
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def commands(path):
    """The words after ``actlab`` of each shell command in a script's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = re.findall(r"^ +PYTHONPATH=examples actlab (.+)$", text, re.M)
    return [shlex.split(command) for command in found]


def test_the_readme_lists_each_example():
    assert len(SCRIPTS) >= 4
    assert STUDIES
    assert NOTEBOOKS
    listed = re.findall(r"\]\((\w+\.(?:py|yaml))\)", README)
    assert sorted(set(listed)) == sorted(path.name for path in [*SCRIPTS, *STUDIES])


@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_each_example_is_set_to_run_on_a_sample(path):
    assert re.search(r"^QUICK = True  # False: ", path.read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("path", STUDIES, ids=stem)
def test_each_study_file_is_valid(path, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FOLDER)
    outcome = cli("study", "plan", path)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("path", NOTEBOOKS, ids=stem)
def test_each_cell_of_a_notebook_runs(path, tmp_path, monkeypatch, capsys):
    """The cells in order in this process, as a kernel would run them."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    cells = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    for cell in cells:
        exec(compile(f"#{cell}", path.name, "exec"), names)
    plt.close("all")
    assert len(cells) > 5
    assert "test/error@last" in capsys.readouterr().out


@pytest.mark.slow  # 10 to 20 seconds of processor time each: fresh processes load torch and Lightning
@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_each_example_runs(path, tmp_path):
    """As a script; then by the command in its docstring, which finds all of its runs finished."""
    assert run(sys.executable, path, cwd=tmp_path)
    finished = len(list(tmp_path.rglob("result.json")))
    assert finished
    assert not list(tmp_path.rglob("failed.json"))
    assert len(commands(path)) == (path.with_suffix(".yaml") in STUDIES)
    for words in commands(path):
        words = [FOLDER.parent / word if word.startswith("examples/") else word for word in words]
        out = run(sys.executable, "-m", "actlab", *words, cwd=tmp_path, PYTHONPATH=str(FOLDER))
        assert f"{finished} finished, 0 to run" in out
