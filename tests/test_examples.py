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

from page_blocks import Block, outputs_of

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


# A script, with the times that a busy machine would leave out.
TIMED = """
import runpy, sys
from actlab.engines import running
running.busy = lambda costs: ""
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def commands(path):
    """The words after ``actlab`` of each shell command in a script's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = re.findall(r"^ +PYTHONPATH=examples actlab (.+)$", text, re.M)
    return [shlex.split(command) for command in found]


def outputs_in_the_readme(path: Path) -> list[Block]:
    """What the section of an example shows as its output."""
    titles = re.findall(r"^##+ (.*)$", README, re.M)
    blocks = [block for _, block in outputs_of(FOLDER / "README.md")]
    return [block for block in blocks if titles[block.section - 1] == path.name]


@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_the_readme_shows_what_each_example_prints(path):
    assert len(outputs_in_the_readme(path)) == 1


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
    cli("study", "plan", path).succeeded()


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


# 10 to 20 seconds of processor time each: fresh processes load torch and Lightning
@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_each_example_runs(path, shows, tmp_path):
    """As a script, with the README's output; then by the docstring's command, without training."""
    printed = run(sys.executable, "-c", TIMED, path, cwd=tmp_path, PYTHONPATH=str(FOLDER))
    finished = len(list(tmp_path.rglob("result.json")))
    assert finished
    assert not list(tmp_path.rglob("failed.json"))
    assert len(commands(path)) == (path.with_suffix(".yaml") in STUDIES)
    for words in commands(path):
        words = [FOLDER.parent / word if word.startswith("examples/") else word for word in words]
        out = run(sys.executable, "-m", "actlab", *words, cwd=tmp_path, PYTHONPATH=str(FOLDER))
        assert f"{finished} finished, 0 to run" in out
    for block in outputs_in_the_readme(path):
        shows(FOLDER / "README.md", block.text, printed)
