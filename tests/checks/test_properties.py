"""What `actlab check` says of activations whose properties are known."""

import re
from itertools import takewhile

import pytest

from actlab.checks.properties import COMPARED, measure
from actlab.checks.rows import NAMES

DIFFERENCES = "gradient against differences"
BEND = (
    "pictures: shape and dtype of the input, finite, as declared; vectors: returned "
    "shape (1, 24, 64, 24) for an input of shape (64, 24). Return a tensor of this shape; "
    "sequences: raises RuntimeError"
)


@pytest.fixture
def file(programs):
    return programs / "measured_activations.py"


@pytest.fixture
def named(programs):
    """Returns the spec of an activation, of `file` unless its own is given."""
    return lambda name: f"{programs}/{name if ':' in name else f'measured_activations.py:{name}'}"


def failures(properties):
    return [one.name for one in properties if one.required and one.ok is False]


def rows(spec):
    """Return the rows by name, without costs, which are measured last."""
    return {
        one.name: one
        for one in takewhile(lambda one: not one.name.startswith("cost"), measure(spec))
    }


def test_every_property_is_a_row():
    found = {one.name: one for one in measure("gelu")}
    assert [*found] == [*NAMES[:-1], *(f"cost against {name}" for name in COMPARED)]
    assert failures([*found.values()]) == []
    assert not [one for one in found.values() if one.ok is False]


def test_a_derivative_that_is_not_finite_is_named(file):
    found = rows(f"{file}:Root")
    assert found["second derivative"].text == "not finite"
    assert found["second derivative"].ok is False


@pytest.mark.parametrize(
    ("name", "row", "text"),
    [
        ("Reshapes", "output", "returned shape (1536,) for an input of shape (64, 24)"),
        ("Infinite", "output", "returned non-finite values"),
        ("Constant", "gradient", "zero"),
        (
            "Mixes",
            "output",
            "declares 'elementwise = True', but its output for one sample depends on other",
        ),
        ("LearnsATensor", "gradient", "learns a tensor of shape (1,) that is not in the optimiser"),
        ("Infinitesimal", "gradient", "non-finite for finite inputs"),
        ("Raises", "output", "raises ValueError: not today"),
        ("InPlaceInTraining", "output", "changes its input. Return a new tensor"),
        ("HiddenInPlace", "output", "changes its input. Return a new tensor"),
        ("MakesAParameter", "gradient", "creates a parameter in its first call (slope)"),
        (
            "hand_written_gradients.py:FirstSize",
            "output",
            "fails for a batch of 3 after one of 2 (RuntimeError: The size of tensor a (3)",
        ),
        (
            "hand_written_gradients.py:Twice",
            DIFFERENCES,
            "at 100 % of inputs. Correct its backward pass",
        ),
        (
            "hand_written_gradients.py:StraightThrough",
            DIFFERENCES,
            "set 'surrogate_gradient = True' on its",
        ),
        (
            "hand_written_gradients.py:undeclared_function",
            DIFFERENCES,
            "set 'surrogate_gradient = True' on",
        ),
    ],
)
def test_violated_requirements_are_named_and_studies_reject(named, cli, name, row, text):
    outcome = cli("check", named(name))
    assert outcome.code == 1
    assert f"{row}  " in outcome.out
    assert text in " ".join(outcome.out.split())
    assert f"Studies reject this activation: {row}.\n" in outcome.out
    assert "wide inputs" not in outcome.out, (
        "rows after a violated requirement would repeat the fault"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "DeclaredStraightThrough",
            "declared a surrogate: differs from the difference quotient at ",
        ),
        ("declared_function", "declared a surrogate: differs from the difference quotient at "),
        ("DeclaredThoughRight", "declared a surrogate, but equals the difference quotient"),
        ("Right", "equals the difference quotient"),
        ("OwnGenerator", "not compared: calls with the same random numbers differ or raise"),
    ],
)
def test_the_row_of_the_gradient_says_what_is_declared(programs, name, text):
    found = rows(f"{programs / 'hand_written_gradients.py'}:{name}")
    row = found["gradient against differences"]
    assert row.text.startswith(text)
    assert row.ok is (None if text.startswith("not compared") else True)
    assert failures([*found.values()]) == []


@pytest.mark.parametrize(
    ("name", "row", "text"),
    [
        ("KeptSlope", "second derivative", "differs from the difference quotient at "),
        ("KeptCurvature", "third derivative", "differs from the difference quotient at "),
    ],
)
def test_the_rows_of_higher_derivatives_name_a_wrong_one(programs, name, row, text):
    found = rows(f"{programs / 'hand_written_gradients.py'}:{name}")
    assert text in found[row].text
    assert [name for name, one in found.items() if "derivative" in name and one.ok is False] == [
        row
    ]
    below = (
        found["third derivative"].text == "not compared: the derivative of the order below differs"
    )
    assert below is (row == "second derivative")
    assert failures([*found.values()]) == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Drawn", {"in stacks": "equals single runs in evaluation; one call per run"}),
        ("Powers", {"state": "4 learnt parameters"}),
        (
            "Low",
            {
                "state": (
                    "1 learnt parameters, 0 numbers in buffers; "
                    "tensors in bfloat16: studies raise them"
                )
            },
        ),
        (
            "Noisy",
            {
                "bfloat16": "not compared: random in evaluation",
                "in stacks": "equals single",
            },
        ),
        ("sized_activations.py:Bend", {"output": BEND}),
        ("Centres", {"third derivative": "equals"}),
    ],
)
def test_rows_compare_copies_of_one_activation(named, name, texts):
    found = rows(named(name))
    for row, text in texts.items():
        assert found[row].text.startswith(text)
    assert not [one for one in found.values() if one.ok is False]


@pytest.mark.parametrize(
    ("how", "text"),
    [("exit 0", "exited with code 0"), ("kill", "was ended by signal 9")],
)
def test_an_activation_that_ends_its_process_is_one_line(file, cli, how, text):
    outcome = cli("check", f"{{name: '{file}:Ends', how: {how}}}")
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert line.startswith("actlab: error: activation Ends(how=")
    assert f" cannot be tried: the process {text}. An activation must return" in line


def test_rows_before_the_end_of_the_process_are_printed(file, cli):
    outcome = cli("check", f"{file}:EndsInBfloat16")
    assert outcome.code == 2
    assert "wide inputs" in outcome.out
    assert "'bfloat16' cannot be measured, because the process exited with code 0" in outcome.err


def test_a_stopped_check_speaks_of_nothing_to_resume(file, cli):
    outcome = cli("check", f"{file}:Stops")
    assert outcome.code == 130
    assert outcome.err == "actlab: stopped\n"


def test_values_that_are_not_finite_are_named_once_with_their_input(file):
    found = rows(f"{file}:Overflows")
    texts = [one.text for name, one in found.items() if name != "float16"]
    assert found["wide inputs"].text.startswith("value nan at x = -9.4")
    assert sum("nan" in text or "finite value" in text for text in texts) == 1
    (infinite,) = rows(f"{file}:Infinite").values()
    assert infinite.name == "output"
    assert re.search(
        r": returned non-finite values for finite inputs: inf for -[\d.]+(;|$)", infinite.text
    )


@pytest.mark.parametrize(
    ("name", "row", "text"),
    [
        ("Exponential", "wide inputs", "value inf at x = "),
    ],
)
def test_other_faults_are_information(file, name, row, text):
    found = rows(f"{file}:{name}")
    assert found[row].ok is False
    assert text in found[row].text
    assert failures([*found.values()]) == []


def test_state_is_named(file):
    text = rows(f"{file}:Learns")["state"].text
    assert (
        text
        == "1 learnt parameters, 1 numbers in buffers; a forward pass in training changes calls"
    )


class Clock:
    """Lets each timed pass take 1 s; with ``jumps`` five of the first activation take 50 s."""

    def __init__(self, jumps):
        self.jumps, self.calls, self.now = jumps, 0, 0.0

    def perf_counter(self):
        # passes; after the first call, each has a start and an end
        finished, ends = divmod(self.calls, 2)
        if self.calls and not ends:
            number, activation = divmod(finished - 1, 3)
            self.now += 50.0 if self.jumps and activation == 0 and number < 5 else 1.0
        self.calls += 1
        return self.now

    def process_time(self):
        return self.now


@pytest.mark.parametrize(
    ("load", "jumps", "numeric"), [(9.0, False, False), (0.1, True, False), (0.1, False, True)]
)
def test_no_cost_is_printed_of_a_busy_machine(monkeypatch, load, jumps, numeric):
    """The load tells of another program, or times of which some fifths are many times longer."""
    monkeypatch.setattr("actlab.checks.properties.time", Clock(jumps))
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    costs = [one.text for one in measure("elu") if one.name.startswith("cost")]
    assert len(costs) == 2
    for text in costs:
        assert (text == "not measured: other programs keep the machine busy") == (not numeric)
        assert bool(re.search(r"\d", text)) == numeric


def test_check_prints_a_table_for_parameters_too(cli):
    out = cli("check", "{name: elu, alpha: 2.0}").succeeded()
    assert "0 learnt parameters" in out
    assert re.search(r"cost against gelu +([\d.]+ \([\d.]+ to [\d.]+\) times|not measured)", out)
    assert cli("check", "gellu").code == 2
