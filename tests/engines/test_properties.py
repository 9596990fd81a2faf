"""What `actlab check` says of activations whose properties are known."""

import math
import re

import pytest

from actlab.engines.properties import COMPARED, INFORMATION, REQUIRED, failures, measure


@pytest.fixture
def file(programs):
    return programs / "measured_activations.py"


def rows(spec):
    return {one.name: one for one in measure(spec)}


def test_every_property_is_a_row():
    found = rows("gelu")
    assert [*found] == [*REQUIRED, *INFORMATION, *(f"cost against {name}" for name in COMPARED)]
    assert failures([*found.values()]) == []
    assert not [one for one in found.values() if one.ok is False]


def test_known_numbers():
    relu = rows("relu")
    mean, variance = map(float, re.findall(r"[\d.]+(?=,| under)", relu["signals"].text)[:2])
    assert mean == pytest.approx(1 / math.sqrt(2 * math.pi), abs=2e-3)  # a quadrature across the kink
    assert variance == pytest.approx(0.5 - 1 / (2 * math.pi), abs=2e-3)
    assert relu["signals"].text.endswith("change the variance of inputs by 1")
    assert "increasing, bounded on the left, from 0 to 30" in relu["course"].text
    assert "kink or jump near x = 0" in relu["smoothness"].text
    assert relu["second derivative"].text == "zero: the gradient is constant in pieces"
    tanh = rows("tanh")
    assert "increasing, bounded, from -1 to 1" in tanh["course"].text
    assert tanh["smoothness"].text == "smooth"
    assert rows("soi")["randomness"].text == "in training; evaluation is deterministic"


@pytest.mark.parametrize(
    ("name", "row", "text"),
    [
        ("Reshapes", "output", "returned shape (1536,) for an input of shape (64, 24)"),
        ("Infinite", "output", "returned non-finite values"),
        ("Constant", "gradient", "zero"),
        ("Mixes", "output", "declares 'elementwise = True', but its output for one sample depends on other"),
        ("LearnsATensor", "gradient", "learns a tensor of shape (1,) that is not in the optimiser"),
        ("Infinitesimal", "gradient", "non-finite for finite inputs"),
        ("Raises", "output", "raises ValueError: not today"),
    ],
)
def test_violated_requirements_are_named_and_studies_reject(file, cli, name, row, text):
    outcome = cli("check", f"{file}:{name}")
    assert outcome.code == 1
    assert f"{row}  " in outcome.out
    assert text in outcome.out
    assert re.search(rf"Studies reject this activation: .*{row}", outcome.out)


@pytest.mark.parametrize(
    ("name", "row", "text"),
    [
        ("Exponential", "wide inputs", "not finite, first at x = "),
        ("Centres", "course", "not a function of one number"),
        ("Untraceable", "torch.compile", "raises "),
        ("WrongGradient", "gradient against differences", "differs from the difference quotient"),
    ],
)
def test_other_faults_are_information(file, name, row, text):
    found = rows(f"{file}:{name}")
    assert found[row].ok is False
    assert text in found[row].text
    assert failures([*found.values()]) == []


def test_state_is_named(file):
    text = rows(f"{file}:Learns")["state"].text
    assert text == "1 learnt parameters, 1 numbers in buffers; a forward pass in training changes calls"


def test_check_prints_a_table_for_parameters_too(cli):
    outcome = cli("check", "{name: elu, alpha: 2.0}")
    assert outcome.code == 0
    assert "from -2 to 30" in outcome.out
    assert re.search(r"cost against gelu +[\d.]+ \([\d.]+ to [\d.]+\) times its time", outcome.out)
    assert cli("check", "gellu").code == 2
