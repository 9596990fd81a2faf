"""Studies in the current folder, of actlab's modules and of modules as users write them."""

import json
from functools import partial

import pytest


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    """Return what runs a command of ``actlab study`` on a text, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def run(text, command, *words, name="mine"):
        (tmp_path / f"{name}.yaml").write_text(text)
        return cli("study", command, f"{name}.yaml", *words)

    return run


@pytest.fixture
def own_study(study, program, tmp_path, monkeypatch):
    """Begin a study of a program's module; return what runs a command on its text."""
    monkeypatch.syspath_prepend(tmp_path)

    def begin(name, base):
        program(name)
        (tmp_path / "base.yaml").write_text(json.dumps(base))
        return partial(study, name="own")

    return begin
