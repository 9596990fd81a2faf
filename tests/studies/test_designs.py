"""What a design can decide at all, said before its runs are trained."""

import math
import re

import pytest

from actlab.analysis.comparison import too_few_seeds
from actlab.analysis.statistics import FEWEST, LEVEL, holm
from actlab.analysis.wording import plural
from actlab.stages import opening
from actlab.studies.reading import load
from actlab.studies.study_folder import StudyFolder
from tiny_study import study_text

COLUMNS = "table: [{metric: test/error, at: last}, {metric: val/loss, at: last}]\n"
GRID = "model.activation: [relu, gelu, elu], model.network.dropout: [0.0, 0.5]"
STAGES = """\
select: {tune: [model.network.dropout]}
stages: [{name: choose, seeds: 2}, {name: compare, seeds: 5-7}]
"""
SEARCHED = """\
stages:
  - {name: search, seeds: 1, search: {gelu: {mu: [0.0, 1.0]}}, as_given: true, trials: 2}
  - {name: compare, seeds: 5-7}
"""
MANY = (
    "model.activation: [relu, gelu, elu, selu, celu, silu, mish, tanh, sigmoid, softplus, "
    "softsign, hardswish, leaky_relu], model.network.dropout: [0.0, 0.5]"
)
# By design: the text of the study, and the number of comparisons in its primary family.
DESIGNS = {
    "one factor": (study_text("model.activation: [relu, gelu]", COLUMNS), 1),
    "two factors": (study_text(GRID, COLUMNS), 4),
    "stages": (study_text(GRID, COLUMNS + STAGES), 2),
    "search": (study_text("model.activation: [relu, gelu]", COLUMNS + SEARCHED), 2),
    "many activations": (study_text(MANY, COLUMNS), 24),
}


def smallest_p(runs, comparisons):
    """The smallest p after Holm's correction that some runs of each side can give.

    It belongs to the probability of being better, if one side wins every time.
    """
    if runs < FEWEST:
        return 1.0
    return holm([2 / math.comb(2 * runs, runs)] * comparisons)[0]


@pytest.mark.parametrize(("text", "comparisons"), DESIGNS.values(), ids=DESIGNS)
def test_the_seeds_that_a_design_lacks_are_those_of_the_smallest_p(tmp_path, text, comparisons):
    (tmp_path / "tiny.yaml").write_text(text)

    def line(*overrides):
        study = load(str(tmp_path / "tiny.yaml"), overrides=overrides)
        return too_few_seeds(opening.designed(StudyFolder(study, tmp_path / "none")))

    (needed,) = {int(number) for number in re.findall(r"--seeds (\d+)", line())}
    assert f"from {needed} seeds on for {plural(comparisons, 'comparison')} (primary)" in line()
    assert smallest_p(needed, comparisons) < LEVEL <= smallest_p(needed - 1, comparisons)
    assert f"got {needed - 1}." in line(f"seeds={needed - 1}")
    assert line(f"seeds={needed}") == ""


def test_plan_and_run_say_before_the_training_that_a_design_cannot_decide(cli, tmp_path):
    tiny, folder = tmp_path / "tiny.yaml", ("--runs-dir", tmp_path / "runs")
    tiny.write_text(study_text("model.activation: [relu, gelu]", COLUMNS, epochs=1, batches=1))
    said = "seeds: expected at least 6 for a verdict on each comparison, got 2. "
    assert said in cli("study", "plan", tiny, *folder).out
    assert said not in cli("study", "plan", tiny, "--seeds", "6", *folder).out
    assert said not in cli("study", "plan", tiny, "--smoke", *folder).out
    trained = cli("study", "run", tiny, "--jobs", "0", *folder).out
    assert 0 <= trained.find(said) < trained.find("0 finished") < trained.find("Verdict: none.")
