"""How often resamples of the selecting seeds select a setting, and what that does to an effect."""

import itertools
import math

import numpy as np
import pytest

import tables_by_hand
from actlab.analysis.choice import choice
from actlab.scoreboard import selections
from actlab.scoreboard.selections import selected_shares
from actlab.studies.plan import Selection

UNIT = "model.activation"
HEAD = "model.activation,model.optimizer.lr,seed,test/error@last,val/error@last\n"


@pytest.mark.parametrize("mode", ["min", "max"])
def test_shares_are_those_of_all_resamples_and_agree_with_studies(mode):
    scores = np.array([[0.30, 0.10, 0.20], [0.15, 0.28, 0.17], [0.40, 0.05, 0.25]])
    if mode == "max":
        scores = -scores
    selected = []
    for seeds in itertools.product(range(3), repeat=3):
        medians = np.median(scores[:, seeds], axis=1)
        selected.append(int(medians.argmin() if mode == "min" else medians.argmax()))
    expected = np.bincount(selected, minlength=3) / 27
    shares = selected_shares(scores, mode)
    assert shares == pytest.approx(expected, abs=0.03)
    best = int(np.median(scores if mode == "min" else -scores, axis=1).argmin())
    assert shares[best] == pytest.approx(choice(scores, mode).again, abs=0.03)


def variance(folder, runs):
    """The variance of the effect of ReLU from lines of a file."""
    file = folder / "values.csv"
    file.write_text(HEAD + "".join(f"{line}\n" for line in runs))
    cell = tables_by_hand.cell({"5": 0.1}, 0.1, chance=0.9)
    row = {"point": {UNIT: "relu"}, "chosen": {}, "edges": [], "columns": [cell]}
    table = tables_by_hand.as_record(tables_by_hand.table("study", UNIT, [row]))
    rule = Selection(("model.optimizer.lr",), "val/error", "min", "last")
    return selections.read(file, rule).variance(table.rows[0], table)


def test_two_settings_that_seeds_select_equally_often(tmp_path):
    """Of one seed each the better setting is selected, which differs: half of the resamples."""
    runs = ["relu,0.1,0,0.2,0.1", "relu,0.1,1,0.2,0.5", "relu,0.2,0,0.4,0.3", "relu,0.2,1,0.4,0.3"]
    shares = selected_shares(np.array([[0.1, 0.5], [0.3, 0.3]]), "min")
    expected = shares.prod() * math.log(2) ** 2
    assert variance(tmp_path, runs) == pytest.approx(expected)
    others = [line.replace("relu", "gelu") for line in runs]
    assert variance(tmp_path, [*runs, *others]) == pytest.approx(expected)


def test_a_stable_selection_and_a_single_setting_add_nothing(tmp_path):
    stable = ["relu,0.1,0,0.2,0.1", "relu,0.1,1,0.2,0.1"]
    stable += ["relu,0.2,0,0.4,0.3", "relu,0.2,1,0.4,0.3"]
    assert variance(tmp_path, stable) == 0
    assert variance(tmp_path, stable[:2]) == 0


def test_a_setting_at_which_runs_diverged_is_not_selected(tmp_path):
    runs = ["relu,0.1,0,inf,inf", "relu,0.1,1,inf,", "relu,0.2,0,0.4,0.3", "relu,0.2,1,0.4,0.3"]
    assert variance(tmp_path, runs) == 0
