"""Files that users' code opens count like files of a config: if one changes, runs train again."""

import json

import pytest

from actlab.engines.running import opens_new_files

FILES = {"rows.txt": "1\n2\n3\n4\n", "offset.txt": "0", "scale.json": "1.5", "log.txt": ""}


@pytest.fixture
def study(cli, program, tmp_path, monkeypatch):
    """Run a study of two activations; return the words on its runs, and on ignored ones."""
    monkeypatch.setattr("actlab.engines.running.opens_new_files", opens_new_files)
    program("read_files")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    trainer = (
        "{max_epochs: 1, logger: false, enable_progress_bar: false, enable_model_summary: false}"
    )

    def run(data):
        (tmp_path / "base.yaml").write_text(
            f"model: {{class_path: read_files.Net}}\ndata: {data}\ntrainer: {trainer}\n"
        )
        (tmp_path / "files.yaml").write_text(
            "base: base.yaml\ngrid: {model.activation: [relu, 'read_files:Scaled']}\n"
            "reference: relu\n"
            "seeds: 1\ntable: [{metric: val_loss}]\n"
        )
        code, out, err = cli("study", "run", "files.yaml")
        assert code == 0, err
        (said,) = (line for line in out.splitlines() if line.startswith("files: "))
        ignored = [line for line in out.splitlines() if line.startswith("ignored")]
        return said.partition(" to run")[0], *ignored

    return run


@pytest.mark.parametrize("kind", ["Default", "Constant"])
def test_runs_train_again_where_a_file_that_their_code_opens_has_changed(study, tmp_path, kind):
    """A file of an activation concerns its own runs; what code writes does not count."""
    data = f"{{class_path: read_files.{kind}}}"
    assert study(data) == ("files: 2 runs, 0 finished, 2",)
    assert study(data) == ("files: 2 runs, 2 finished, 0",)
    for changed, number in (("rows.txt", 2), ("offset.txt", 2), ("scale.json", 1)):
        (tmp_path / changed).write_text("7")
        said, ignored = study(data)
        assert said == f"files: 2 runs, {2 - number} finished, {number}"
        assert "because " in ignored
        assert changed in ignored
        (tmp_path / changed).write_text(FILES[changed])
    assert study(data)[0] == "files: 2 runs, 2 finished, 0"


def test_a_named_file_counts_once(study, tmp_path):
    study("{class_path: read_files.Default, init_args: {file: rows.txt}}")
    opened = json.loads((tmp_path / "runs/files/opened.json").read_text())
    assert {path for paths in opened.values() for path in paths} == {"offset.txt", "scale.json"}
