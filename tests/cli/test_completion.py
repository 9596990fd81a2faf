"""The shells' completion, asked in the shells."""

import shutil
import subprocess

import pytest

from actlab.cli import completion, study

ASK = """
COMP_WORDS=({words}); COMP_CWORD={last}; COMPREPLY=(); _shtab_actlab; echo "${{COMPREPLY[*]}}"
"""
ASKED = [
    (["actlab", "st"], {"study"}),
    (["actlab", "study", "''"], set(study.COMMANDS)),
    (["actlab", "study", "new", "mine.yaml", "--like", "soi_m"], {"soi_mnist"}),
    (["actlab", "study", "clean", "demo", "--oth"], {"--others"}),
    (["actlab", "study", "run", "demo", "--act"], {"--activation"}),
    (["actlab", "study", "run", "demo", "--activation", "gelu_t"], {"gelu_tanh"}),
    (["actlab", "study", "run", "soi_m"], {"soi_mnist"}),
    (["actlab", "study", "run", "./mi"], {"./mine.yaml"}),
    (["actlab", "fit", "-c", "mnist_c"], {"mnist_classifier"}),
    (["actlab", "fit", "--model.network.hid"], {"--model.network.hidden"}),
    (["actlab", "data", "check", "tim"], {"timit"}),
    (["actlab", "completion", "b"], {"bash"}),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    from actlab.__main__ import main

    folder = tmp_path_factory.mktemp("completion")
    for shell in completion.SHELLS:
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w") as file:
            patch.setattr("sys.stdout", file)
            assert main(["completion", shell]) == 0
    return folder


def test_bash_completes_commands_options_names_and_files(scripts, tmp_path):
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "mist.txt").touch()
    asked = [ASK.format(words=" ".join(words), last=len(words) - 1) for words, _ in ASKED]
    program = f"source {scripts / 'bash'}\n" + "".join(asked)
    done = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = [set(line.split()) for line in done.stdout.splitlines()]
    assert found == [expected for _, expected in ASKED]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_shell_reads_its_script(scripts, shell):
    assert "gelu_mnist_classifier" in (scripts / shell).read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", scripts / shell], check=True)


COMMANDS = ["study run", "study report", "scoreboard", "report", "data", "activations", "completion"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples(cli, command):
    outcome = cli(*command.split(), "--help")
    assert outcome.code == 0
    assert f"examples:\n  actlab {command}" in outcome.out
    assert max(map(len, outcome.out.partition("examples:")[0].splitlines())) <= 80
