"""Units that cannot be trained: told in one line, recorded as failed, and the study goes on."""

import json

import pytest

pytestmark = pytest.mark.tries_stacks

STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 2
  trainer.limit_train_batches: 4
  model.network.hidden: [8]
grid: {model.activation: [relu]}
seeds: 2
"""


@pytest.fixture
def study(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return lambda command, *words: cli("study", command, "tiny.yaml", *words)


def test_a_unit_whose_gradient_vanishes_in_deep_networks_only_is_trained(study, tmp_path):
    (tmp_path / "even.py").write_text("import torch\n\n\ndef even(x):\n    return torch.tanh(x) * x\n")
    deep = "model.network.hidden=[8, 8, 8, 8, 8, 8, 8, 8, 8, 8]"
    outcome = study("run", "--activation", "./even.py:even", "--set", deep)
    assert "has zero gradient" not in outcome.out
    assert "4 of 4 runs finished" in outcome.out


BROKEN = {  # unit → what is said of it
    "Wider": "returned shape (8, 16) for an input of shape (8, 8)",
    "Infinite": "returned non-finite values",
    "Double": "returned float64 for float32: return the dtype of the input",
    "Steep": "has a non-finite gradient for finite inputs",
    "Cut": "has zero gradient with respect to its input",
    "Raises": "fails: KeyError: 'no such thing'",
    "Jumpy": "returns different outputs in training and in evaluation",
    "Listed": "learns a tensor of shape () that is not in the optimiser: make it a Parameter",
    "Centred": "declares 'elementwise = True', but",
    "Overwrites": "changes its input: return a new tensor",
    "Twice": "has a gradient that differs from the difference quotient at 100 % of inputs: correct",
    "undeclared_function": "has a gradient that differs from the difference quotient at",
}


def test_activations_that_cannot_be_created_leave_the_others_to_be_trained(study, program, tmp_path):
    program("failing_activations")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    words = {
        "./wrong.py:f": "activation f fails: cannot import",
        "./failing_activations.py:Absent": "activation Absent fails: unknown attribute",
        "./failing_activations.py:Needs": "activation Needs fails: ",
    }
    outcome = study("run", *[word for name in words for word in ("--activation", name)])
    assert outcome.code == 1, outcome.err
    for text in words.values():
        assert text in outcome.out
    assert "2 of 8 runs finished" in outcome.out


def test_an_activation_a_thousand_times_slower_than_relu_is_named_with_its_time(study, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\n\n\ndef slow(x):\n    time.sleep(0.05)\n    return x.relu()\n"
    )
    out = study("run", "--activation", "./slow.py:slow", "--set", "seeds=1").out
    (line,) = (line for line in out.splitlines() if "times as long as ReLU" in line)
    assert "activation slow takes " in line
    assert "for one run" in line


def test_an_activation_that_cannot_be_timed_is_trained(study, program):
    program("failing_activations")
    outcome = study("run", "--activation", "./failing_activations.py:Timid")
    assert outcome.code == 0, outcome.err
    assert "4 of 4 runs finished" in outcome.out


def test_broken_units_are_named_before_training_and_the_study_goes_on(study, program):
    for name in ("failing_activations", "hand_written_gradients"):
        program(name)
    written = dict.fromkeys(("Twice", "undeclared_function"), "hand_written_gradients")
    files = {unit: written.get(unit, "failing_activations") for unit in BROKEN}
    units = [word for unit, file in files.items() for word in ("--activation", f"./{file}.py:{unit}")]
    outcome = study("run", "--jobs", "1", *units)
    assert outcome.code == 1, outcome.err
    for unit, words in BROKEN.items():
        assert f"activation {unit} {words}" in outcome.out
    assert outcome.out.count("its 2 runs are left out") == len(BROKEN)
    assert f"2 of {2 + 2 * len(BROKEN)} runs finished" in outcome.out
    assert study("plan", *units).out.count("failed ") == 2 * len(BROKEN)


def test_a_hint_says_how_an_activation_is_trained_faster(study, tmp_path):
    declared = {"a": "", "b": "    stochastic = False\n", "c": "    elementwise, stochastic = True, False\n"}
    for name, lines in declared.items():
        text = f"import torch\n\n\nclass Bent{name}(torch.nn.Module):\n{lines}    def forward(self, x):\n"
        (tmp_path / f"bent{name}.py").write_text(f"{text}        return x.relu()\n")
    units = [word for name in declared for word in ("--activation", f"./bent{name}.py:Bent{name}")]
    found = study("run", *units).out.splitlines()
    (both,) = (line for line in found if line.startswith("called separately for each run: Benta."))
    (one,) = (line for line in found if line.startswith("called separately for each run: Bentb."))
    assert "set 'elementwise = True' and 'stochastic = False' on its class" in both
    assert "If the activation mixes no elements, set 'elementwise = True' on its class" in one
    assert sum("called separately" in line for line in found) == 2


def test_an_activation_that_no_network_can_hold_leaves_the_others_to_be_trained(study, program):
    program("failing_activations")
    outcome = study("run", "--activation", "./failing_activations.py:Single")
    assert outcome.code == 1, outcome.err
    assert "activation Single fails in the network: " in outcome.out
    assert "one is enough" in outcome.out
    assert "2 of 4 runs finished" in outcome.out


def test_what_no_checkpoint_would_keep_is_named(study, program):
    program("stateful_activation")
    out = study("run", "--activation", "./stateful_activation.py:Counting").out
    named = {line.split("'")[1] for line in out.splitlines() if "no checkpoint keeps it" in line}
    assert named == {"calls", "seen", "last"}
    assert "'calls' of Counting (network." in out
    assert "4 of 4 runs finished" in out


def test_a_broken_unit_leaves_out_no_other_that_prints_alike(study, tmp_path):
    (tmp_path / "mine.py").write_text("def relu(x):\n    return x.detach().relu()\n")
    outcome = study("run", "--activation", "./mine.py:relu")
    assert "its 2 runs are left out" in outcome.out
    assert "2 of 4 runs finished" in outcome.out


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_a_unit_that_fails_in_training_is_recorded_and_the_others_go_on(study, program, tmp_path, engine):
    file = program("late_activations")
    outcome = study("run", "--activation", "./late_activations.py:Later", "--engine", engine)
    assert outcome.code == 1, outcome.err
    assert "failed: RuntimeError: tired" in outcome.out
    assert "2 of 4 runs finished" in outcome.out
    errors = [json.loads(p.read_text())["error"] for p in tmp_path.glob("runs/tiny/Later-*/failed.json")]
    assert errors == ["RuntimeError: tired"] * 2
    # After the fix it is another activation: its runs start from scratch.
    file.write_text(file.read_text().replace("first = 6", "first = 60"))
    assert "4 of 4 runs finished" in study("run", "--activation", "./late_activations.py:Later").out


def test_a_disk_that_refuses_is_one_line(study, tmp_path):
    (tmp_path / "runs").write_text("a file")
    outcome = study("run")
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_declared_surrogate_gradient_is_trained_and_named_below_the_table(study, program):
    program("hand_written_gradients")
    units = [f"./hand_written_gradients.py:{name}" for name in ("DeclaredStraightThrough", "Right")]
    words = [word for unit in units for word in ("--activation", unit)]
    for engine in ("auto", "sequential"):
        outcome = study("run", *words, "--engine", engine, "--runs-dir", engine)
        assert outcome.code == 0, outcome.err
        table = " ".join(study("show", *words, "--runs-dir", engine).out.split())
        assert "Gradient declared a surrogate, not the derivative: DeclaredStraightThrough." in table
