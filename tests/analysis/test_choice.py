"""How far a choice of settings depends on the seeds that chose it."""

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from actlab.analysis.choice import choice
from actlab.analysis.comparison import table_of
from actlab.analysis.results import Results
from actlab.stages import opening
from actlab.studies.plan import Selection, Stage, Study
from actlab.studies.study_folder import StudyFolder
from written_runs import ACT, finished, study, write

LR = "model.optimizer.lr"


def by_all_draws(values: np.ndarray) -> tuple[float, float]:
    """Again and out of bag, over all n^n ordered draws of the seeds."""
    number = values.shape[1]
    best = int(np.argmin([np.median(of) for of in values]))
    again, bag = Counter[bool](), []
    for draw in itertools.product(range(number), repeat=number):
        chosen = int(np.argmin([np.median(of[list(draw)]) for of in values]))
        again[chosen == best] += 1
        if rest := [seed for seed in range(number) if seed not in draw]:
            bag.append(np.median(values[chosen][rest]))
    return again[True] / number**number, float(np.mean(bag))


@pytest.mark.parametrize("seed", range(4))
def test_the_share_of_equal_choices_is_that_of_all_draws_of_a_bootstrap(seed):
    values = np.random.default_rng(seed).normal(size=(4, 5)).round(1)  # with ties
    values[3, :seed] = np.inf  # diverged
    found = choice(values, "min")
    assert (found.again, found.elsewhere) == pytest.approx(by_all_draws(values))
    assert found.score == np.median(values[np.median(values, axis=1).argmin()])
    high = choice(-values, "max")
    assert (high.again, high.score, high.elsewhere) == pytest.approx(
        (found.again, -found.score, -found.elsewhere)
    )


def test_many_seeds_are_drawn_and_one_cannot_say():
    values = np.random.default_rng(0).normal(np.arange(3)[:, None], 1, size=(3, 12))
    assert choice(values, "min").again == pytest.approx(0.99, abs=0.02)
    one = choice(values[:, :1], "min")
    assert (one.again, one.elsewhere) == (None, None)


def tuned(**changes) -> Study:
    grid = {ACT: ["gelu", "relu"], LR: [0.1, 0.01]}
    select = Selection((LR,), "val/loss", at="last")
    return study(
        grids=(grid,), select=select, table=({"metric": "test/error"},), reference="relu", **changes
    )


def losses(run) -> dict[str, list[float]]:
    """Of gelu the rates are equal but for noise, of relu the first is better."""
    rate = run.point[LR] == 0.1
    noise = 0.01 * ((7 * run.seed + 3 * rate) % 5)
    gap = 0.0 if run.point[ACT] == "gelu" else 0.5 * (not rate)
    return {"val/loss": [1 + gap + noise], "test/error": [0.2 + noise]}


def staged(root: Path, chose: int = 5) -> Results:
    plan = tuned(
        seeds=(*range(chose),),
        stages=(Stage("choose", (*range(chose),)), Stage("compare", (*range(10, 18),))),
    )
    folder = StudyFolder(plan, root)
    for _ in plan.stages:
        for run in opening.opened(folder).stages[-1].runs:
            write(root, run.run, losses(run.run))
    return opening.load(folder)[-1]


def test_a_choice_that_other_seeds_would_not_make_is_a_note_at_the_verdict(tmp_path):
    last = staged(tmp_path)
    gelu, relu = table_of(last).rows
    assert relu.choice.again == 1
    assert 0.2 < gelu.choice.again < 0.8
    assert gelu.choice.seeds == 5
    assert gelu.choice.elsewhere == pytest.approx(
        np.median([1 + 0.01 * ((7 * s + 3 * (gelu.chosen[LR] == 0.1)) % 5) for s in range(10, 18)])
    )
    share = f"{100 * gelu.choice.again:.0f} %"
    (said,) = table_of(last).verdicts
    assert f" Other seeds would choose the same setting in {share} for it." in said.text
    (note,) = (line for line in table_of(last).footnotes if line.startswith("Chosen per row"))
    assert f"Resampling the 5 seeds that chose keeps the setting in {share} for gelu (1." in note
    assert "and in at least 80 % for the others" in note
    (row, _) = json.loads(table_of(last).to_json())["rows"]
    assert row["choice"]["again"] == gelu.choice.again


def test_without_stages_the_seeds_left_out_stand_for_fresh_ones(tmp_path):
    loaded = finished(tmp_path, tuned(seeds=(*range(5),)), losses)
    gelu, _ = table_of(loaded).rows
    values = np.array(
        [[1 + 0.01 * ((7 * seed + 3 * rate) % 5) for seed in range(5)] for rate in (True, False)]
    )
    assert (gelu.choice.again, gelu.choice.elsewhere) == pytest.approx(by_all_draws(values))
    assert any("and on seeds left out" in line for line in table_of(loaded).footnotes)


def test_one_seed_cannot_say_and_missing_runs_say_nothing(tmp_path):
    one = staged(tmp_path / "one", chose=1)
    notes = " ".join(table_of(one).footnotes)
    assert "whether another would choose the same cannot be said" in notes
    plan = tuned(seeds=(*range(5),))
    for run in plan.runs()[1:]:
        write(tmp_path / "few", run, losses(run))
    gelu, relu = table_of(opening.load(StudyFolder(plan, tmp_path / "few"))[-1]).rows
    assert gelu.choice is None
    assert relu.choice is not None
