"""Names of files and printed text hold any character, whatever the locale and the terminal."""

import os
import subprocess
import sys

STUDY = """\
base: mnist_classifier
set: {data.sample: true, data.cache_dir: "./caché"}
grid: {model.activation: [relu, "./unité.py:mine"]}
seeds: 1
"""


def actlab(folder, *words, **variables):
    return subprocess.run(
        [sys.executable, "-m", "actlab", *words],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **variables},
    )


def test_paths_need_not_be_ascii_in_the_locale_c(tmp_path):
    folder = tmp_path / "étude"
    folder.mkdir()
    (folder / "unité.py").write_text("def mine(x):\n    return x.relu()\n", encoding="utf-8")
    (folder / "tiny.yaml").write_text(STUDY, encoding="utf-8")
    words = ("study", "plan", "tiny.yaml", "--reference", f"{folder / 'unité.py'}:mine", "--runs-dir", "été")
    done = actlab(folder, *words, LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "tiny: 2 runs, 2 not finished" in done.stdout


def test_a_terminal_may_be_ascii(tmp_path):
    done = actlab(tmp_path, "--help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "actlab COMMAND ..." in done.stdout
