"""Studies of modules as users write them."""

import json

import pytest


@pytest.fixture
def own_study(cli, program, tmp_path, monkeypatch):
    """Begin a study of a program's module in the current folder; return what runs a command on its text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def begin(name, base):
        program(name)
        (tmp_path / "base.yaml").write_text(json.dumps(base))

        def run(text, command, *words):
            (tmp_path / "own.yaml").write_text(text)
            return cli("study", command, "own.yaml", *words)

        return run

    return begin
