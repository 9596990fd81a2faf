"""Activations that cannot be trained: one line, recorded as failed, and the study goes on."""

import json
import re

import pytest

from tiny_study import study_text

pytestmark = pytest.mark.tries_stacks

STUDY = study_text(batches=4)
BRIEF = (
    "--set",
    "seeds=1",
    "--set",
    "trainer.max_epochs=1",
    "--set",
    "trainer.limit_train_batches=1",
)
ALONE = (*BRIEF, "--max-stack", "1")  # no stacks are tried


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return lambda command, *words: cli("study", command, "tiny.yaml", *words)


BROKEN = {  # activation → what is said of it
    "./wrong.py:f": "fails: cannot import",
    "./mine.py:relu": "has zero gradient",  # leaves out no other activation that prints alike
    **{
        f"./failing_activations.py:{name}": text
        for name, text in {
            "Absent": "fails: unknown name in",
            "Needs": "fails: ",
            "Single": "fails in the network: ",
            "Wider": "returned shape (8, 16) for an input of shape (8, 8)",
            "Infinite": "returned non-finite values",
            "Double": "returned float64 for float32. Return the dtype of the input",
            "Steep": "has a non-finite gradient for finite inputs",
            "Cut": "has zero gradient with respect to its input",
            "Raises": "fails: KeyError: 'no such thing'",
            "Jumpy": "returns different outputs in training and in evaluation",
            "Listed": (
                "learns a tensor of shape () that is not in the optimiser: make it a Parameter"
            ),
            "Centred": "declares 'elementwise = True', but",
            "Overwrites": "changes its input. Return a new tensor",
        }.items()
    },
    "./hand_written_gradients.py:Twice": (
        "has a gradient that differs from the difference quotient at 100 % of inputs. Correct"
    ),
    "./hand_written_gradients.py:undeclared_function": "has a gradient that differs from",
    "./shared_state.py:Defaulted": (
        "inner.weight is shared by all instances of Defaulted: create it in"
    ),
    "./shared_state.py:OfFile": (
        "slope is shared by all instances of OfFile: create it in `__init__`"
    ),
    "./shared_state.py:Unregistered": "learns a tensor of shape () that is not in the optimiser",
}


def added(names):
    return [word for name in names for word in ("--activation", name)]


def test_broken_activations_are_named_before_training_and_the_study_goes_on(
    study, program, tmp_path
):
    for name in ("failing_activations", "hand_written_gradients", "shared_state"):
        program(name)
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "mine.py").write_text("def relu(x):\n    return x.detach().relu()\n")
    outcome = study("run", *added(BROKEN), *ALONE)
    assert outcome.code == 1, outcome.err
    lines = (line for line in outcome.out.splitlines() if line.startswith("activation "))
    said = {line.split()[1].rstrip(":"): line for line in lines}
    for unit, words in BROKEN.items():
        assert words in said[unit.rpartition(":")[2]]
    assert "one is enough" in outcome.out
    assert outcome.out.count("its 1 run is left out") == len(BROKEN)
    assert f"1 of {1 + len(BROKEN)} runs finished" in outcome.out
    assert study("plan", *added([*BROKEN][:2]), *BRIEF).out.count("failed ") == 2


def test_units_that_are_only_unusual_are_trained(study, program, tmp_path):
    """In a deep network the gradient of `even` vanishes."""
    for name in ("hand_written_gradients", "stateful_activation", "shared_state"):
        program(name)
    (tmp_path / "even.py").write_text(
        "import torch\n\n\ndef even(x):\n    return torch.tanh(x) * x\n"
    )
    surrogate = "./hand_written_gradients.py:DeclaredStraightThrough"
    units = ["./even.py:even", surrogate]
    units += ["./stateful_activation.py:Counting", "./stateful_activation.py:Annealed"]
    units += [
        f"./shared_state.py:{name}"
        for name in ("Constant", "Cached", "Noisy", "Running", "Drawing")
    ]
    words = added(units)
    outcome = study(
        "run", *words, *ALONE, "--set", "model.network.hidden=[8, 8, 8, 8, 8, 8, 8, 8, 8, 8]"
    )
    assert outcome.code == 0, outcome.err
    assert "10 of 10 runs finished" in outcome.out
    told = [
        line.partition(" ")[0] for line in outcome.out.splitlines() if "no checkpoint has" in line
    ]
    assert told == ["Annealed", "Running", "Drawing"]
    assert "declared a surrogate, not the derivative: DeclaredStraightThrough." in " ".join(
        outcome.out.split()
    )


def test_a_unit_that_fails_in_training_is_recorded_and_the_others_go_on(study, program, tmp_path):
    """First its stack, then each run alone."""
    file = program("late_activations")
    words = added(["./late_activations.py:Later"])
    outcome = study("run", *words)
    assert outcome.code == 1, outcome.err
    assert (
        "a stack of 2 runs failed (RuntimeError: tired (late_activations.py, line " in outcome.out
    )
    assert "failed: RuntimeError: tired" in outcome.out
    assert "2 of 4 runs finished" in outcome.out
    errors = [
        json.loads(p.read_text())["error"] for p in tmp_path.glob("runs/tiny/Later-*/failed.json")
    ]
    place = r"\(late_activations\.py, line \d+: raise RuntimeError\(.tired.\)\)"
    assert [bool(re.fullmatch(f"RuntimeError: tired {place}", error)) for error in errors] == [
        True
    ] * 2
    # After the fix it is another activation: its runs start from scratch.
    file.write_text(file.read_text().replace("first = 6", "first = 60"))
    assert "4 of 4 runs finished" in study("run", *words).out


def test_a_disk_that_refuses_is_one_line(study, tmp_path):
    (tmp_path / "runs").write_text("a file")
    outcome = study("run")
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1


def test_an_activation_is_tried_in_each_network(study, tmp_path):
    """It takes eight features: the runs of the other network are left out, and no others."""
    text = "import torch\n\n\nclass Eight(torch.nn.Module):\n    def forward(self, x):\n"
    (tmp_path / "eight.py").write_text(f"{text}        return x.relu() * torch.ones(8)\n")
    text = STUDY.replace("[relu]}", "[./eight.py:Eight], model.network.hidden: [[8], [16]]}")
    (tmp_path / "tiny.yaml").write_text(text.replace("  model.network.hidden: [8]\n", ""))
    out = study("run", *ALONE).out
    assert "The size of tensor a (16)" in out
    assert "its 1 run is left out" in out
    assert "1 of 2 runs finished" in out


NETS = """\
import pytorch_lightning as pl
from torch import nn


class Gate(nn.Module):
    def __init__(self, inner=nn.PReLU()):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Gated(nn.Sequential):
    def __init__(self, act, num_classes, input_shape):
        super().__init__(nn.Flatten(), nn.Linear(784, 8), act(8), Gate(), nn.Linear(8, num_classes))


class Module(pl.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(784, width), Gate())
"""


@pytest.mark.parametrize(
    ("grid", "name"),
    [
        (
            "{model.activation: [relu], model.network: [{class_path: tied.Gated}]}",
            "network.3.inner.weight",
        ),
        ("{model: [{class_path: tied.Module}]}", "network.2.inner.weight"),
    ],
)
def test_a_network_with_a_parameter_of_all_networks_ends_the_study(
    study, tmp_path, monkeypatch, grid, name
):
    (tmp_path / "tied.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    text = STUDY.replace("grid: {model.activation: [relu]}", f"grid: {grid}")
    (tmp_path / "tiny.yaml").write_text(text.replace("  model.network.hidden: [8]\n", ""))
    outcome = study("run", *ALONE)
    assert outcome.code == 2, outcome.out
    assert f"the network: {name} is shared by all instances of Gate: create it in" in outcome.err
    assert "Nothing is trained" in outcome.err
    assert not [*tmp_path.rglob("result.json")]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_reentrant_checkpoint_trains(study, program):
    program("hand_written_gradients")
    words = ("--activation", "./hand_written_gradients.py:Checkpointed")
    outcome = study("run", *words, *ALONE)
    assert (outcome.code, "2 of 2 runs finished." in outcome.out) == (0, True), (
        outcome.out + outcome.err
    )
