"""The examples of docs/concepts/verdicts.md: the output for runs with the errors above each."""

import math
import re
import textwrap
from pathlib import Path

import pytest

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.analysis.statistics import sampling_error
from actlab.studies.plan import Selection
from actlab.studies.states import DIVERGED, FINISHED
from actlab.studies.study_folder import StudyFolder
from page_blocks import blocks_of
from written_runs import ACT, study, write

PAGE = Path(__file__).parents[2] / "docs/concepts/verdicts.md"
EXAMPLES = [block.text for block in blocks_of(PAGE) if block.text.startswith("gelu ")]
KINDS = {
    "better": r"mine: better, [\d.]+ points lower test error on this test set than gelu \(",
    "better, inside the margin": (
        r"mine: better, .* than gelu, less than the margin of 1.00 points \("
    ),
    "worse": r"mine: worse, [\d.]+ points higher",
    "worse by divergence": r"mine: worse than gelu .* \(failed 6 of 8 runs, 0 of gelu;",
    "equivalent": r"mine: equivalent to gelu within 1.00 points",
    "undecided": r"mine: no significant difference to gelu in test error .* with 80 % power",
    "too few pairs": r"No verdict against gelu from \d pairs",
    "unfinished": r"No verdict yet against gelu",
    "at chance": r"mine: worse than gelu .* It is at chance\.",
}
WIDTH = 88


def printed(example: str, root: Path) -> str:
    """The sentences for errors in percent, a column a seed: margin one point, chance 90 %."""
    given = {
        name: words for name, *words in map(str.split, example.partition("\n\n")[0].splitlines())
    }
    plan = study(
        grids=({ACT: list(given)},),
        reference="gelu",
        select=Selection(),
        seeds=tuple(range(len(given["gelu"]))),
        table=({"metric": "test/error", "percent": True, "margin": 0.01, "chance": 0.9},),
    )
    for run in plan.runs():
        word = given[run.point[ACT]][run.seed]
        if word != "–":
            value = math.inf if word == "diverged" else float(word) / 100
            status = DIVERGED if word == "diverged" else FINISHED
            write(root, run, {"test/error": [value]}, status=status, scored={"test": 1000})
    return "\n".join(
        textwrap.fill(line, WIDTH)
        for line in list(table_of(results.load(StudyFolder(plan, root))).summary)
    )


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_sentence_of_the_page_is_printed(example, tmp_path):
    assert printed(example, tmp_path) == example.partition("\n\n")[2].rstrip("\n")


def test_the_page_has_each_kind_of_verdict():
    for kind in KINDS:
        said = [" ".join(example.partition("\n\n")[2].split()) for example in EXAMPLES]
        assert any(re.match(KINDS[kind], one) for one in said)


def test_numbers_in_the_prose_are_those_of_the_rules():
    prose = " ".join(PAGE.read_text(encoding="utf-8").split())
    small, large = (100 * (sampling_error(*of) or 0) for of in ((0.09, 1_000), (0.02, 10_000)))
    assert (
        f"{small:.1f} points for an error of 9 % on 1,000 samples, {large:.2f} for 2 % on 10,000"
        in prose
    )
    interval = re.search(r"95 % interval ([\d.]+) to ([\d.]+);", prose)
    assert interval
    assert f"on average by {float(interval[1]):.1f} to {float(interval[2])} points" in prose
