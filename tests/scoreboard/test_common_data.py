"""Ranks on the data sets that an activation has: stored runs of the scoreboard as a user's own."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from actlab.analysis import study_table
from actlab.scoreboard import definition, scores, sentences
from actlab.storage.resources import resource
from scored_rows import STORED

UNIT = "model.activation"
RESULTS = Path(__file__).parents[2] / "results"
TASKS = [*dict.fromkeys(task for task, _ in STORED)]


def copies(label, name, tasks):
    """The stored tables of some tasks, with the rows of an activation under another name."""
    tables = {}
    for task in tasks:
        for data, data_set in definition.load().with_tables[task].data.items():
            stored = study_table.read(resource(data_set.table) / study_table.NAME)
            rows = [row for row in stored.rows if row.point[UNIT] == label]
            rows = [replace(row, point=row.point | {UNIT: name}) for row in rows]
            tables[task, data] = replace(stored, rows=tuple(rows), own=(name,))
    return tables


def selecting(label, name, tasks, folder):
    """The stored runs that selected settings, under another name."""
    files = {}
    for task in tasks:
        stated = definition.load().tasks[task]
        for data, *_ in stated.groups:
            runs = pd.read_csv(resource(stated.data[data].table) / "choose/values.csv")
            file = folder / f"{task}-{data}.csv"
            runs[runs[UNIT] == label].assign(**{UNIT: name}).to_csv(file, index=False)
            files[task, data] = file
    return files


def errors_of(task, data):
    """The error of each run at the selected setting, inf where it failed, with its part."""
    folder, column, chance = STORED[task, data]
    runs = pd.read_csv(RESULTS / folder / "values.csv").query("chosen == 1")
    errors, guess = runs[column], chance
    if "psnr" in column:
        errors, guess = 10 ** (-errors / 10), 10 ** (-chance / 10)
    runs = runs.assign(error=errors.where(errors < guess, np.inf))
    runs["part"] = runs["block"] if "block" in runs and runs["block"].nunique() > 1 else ""
    for _, part in runs.groupby("part"):
        best = part.groupby(UNIT)["error"].median().min()
        gained = part["error"] <= guess - 0.1 * (guess - best)
        runs.loc[part.index, "error"] = part["error"].where(gained, np.inf)
    return runs


@cache
def ranks_by_data():
    """The ranks of ten activations on each part of a data set, by task and data set."""
    ranks = {}
    for task, data in STORED:
        for part, runs in errors_of(task, data).groupby("part"):
            # MNIST is a data set of two tasks
            name = f"{task}, {data} {part}" if task == "equation" else f"{task}, {data}"
            medians = runs.groupby(UNIT)["error"].median().drop("gauss", errors="ignore")
            ranks[task, name, part] = medians.rank()
    return pd.DataFrame(ranks).T.rename_axis(["task", "data", "part"])


def mean_ranks(ranks):
    by_data = ranks.groupby(level=["task", "data"]).mean()
    return by_data.groupby(level="task").mean().mean()


def ranks_on(tasks):
    """The mean rank of ten activations over tasks, from the runs."""
    return mean_ranks(ranks_by_data().loc[tasks])


def test_mean_ranks_of_the_stored_scoreboard_are_recomputed_from_the_runs():
    ranked = {s.label: s.rank.mean for s in scores.load().standings if s.rank}
    assert len(ranked) == 10
    expected = ranks_on(TASKS)
    assert ranked == pytest.approx(expected.to_dict())


def test_what_is_robust_in_the_ranks_follows_from_the_runs():
    text = " ".join((RESULTS / "scoreboard/README.md").read_text(encoding="utf-8").split())
    stay = "GELU stays first or second, and ELU, ReLU² and the identity stay the last three."
    assert f"Without any one task or data set, {stay}" in text
    ranks = ranks_by_data()
    sine_first = set()
    mish_second = set()
    for level in ("task", "data"):
        for name in ranks.index.unique(level):
            order = [*mean_ranks(ranks.drop(name, level=level)).sort_values().index]
            assert "gelu" in order[:2]
            assert {*order[-3:]} == {"elu", "relu_squared", "identity"}
            if level == "task" and order[0] == "sine":
                sine_first.add(name)
            if level == "task" and order[1] == "mish":
                mish_second.add(name)
    assert "Sine is first without classifiers, autoencoders or convolutions." in text
    assert sine_first == {"classifier", "autoencoder", "convolutions"}
    assert "Mish is second without pictures or tags." in text
    assert mish_second == {"picture", "tagging"}


@pytest.mark.parametrize(
    "tasks",
    [["text", "picture", "classifier"], ["text", "equation"], ["picture", "classifier"]],
    ids=", ".join,
)
def test_relu_under_another_name_has_the_rank_of_relu_on_the_same_data(tasks, tmp_path):
    """The ranks of the others on all tasks would place it elsewhere."""
    runs = selecting("relu", "mine", tasks, tmp_path)
    scoreboard = scores.load(copies("relu", "mine", tasks), runs)
    mine = next(standing for standing in scoreboard.standings if standing.own)

    # Two equal activations share two ranks
    alone = ranks_on(tasks)
    ahead = int((alone < alone["relu"] - 1e-9).sum())
    assert mine.rank.place == ahead + 1
    assert mine.rank.among == 11
    datasets = sum(len(definition.load().tasks[task].data) for task in tasks)
    datasets += "equation" in tasks  # its two equations count as data sets
    expected = f"Rank {ahead + 1} of 11 on these {datasets} data sets of {len(tasks)} tasks"
    assert expected in sentences.sentence(mine, scoreboard)

    # Each number of these tasks is ReLU's
    relu = next(standing for standing in scoreboard.standings if standing.label == "relu")
    assert {name: mine.tasks[name].ratio for name in tasks} == {
        name: relu.tasks[name].ratio for name in tasks
    }
    assert scoreboard.standings.index(mine) > scoreboard.standings.index(relu)


def test_an_activation_on_one_task_has_no_rank():
    scoreboard = scores.load(copies("sine", "mine", ["equation"]))
    mine = next(standing for standing in scoreboard.standings if standing.own)
    assert mine.rank is None
    assert mine.over is None
    said = "\n".join(sentences.lines(scoreboard))
    assert "No rank: it has runs on 1 task, a rank needs two." in said
    assert "Rank" not in said
    others = [standing.rank for standing in scoreboard.standings if not standing.own]
    assert others == [standing.rank for standing in scores.load().standings]


def test_a_copy_of_the_reference_is_neither_better_nor_worse(tmp_path):
    tasks = [*definition.load().with_tables]
    assert tasks == TASKS
    runs = selecting("gelu", "mine", tasks, tmp_path)
    scoreboard = scores.load(copies("gelu", "mine", tasks), runs)
    gelu = scoreboard.standings[0]
    mine = next(standing for standing in scoreboard.standings if standing.own)
    assert mine.rank == gelu.rank
    assert mine.better == 0.5
    assert [score.p for score in mine.on] == [1.0] * len(mine.on)
    assert mine.over.here.value == 1
    assert mine.over.mean.better == pytest.approx(0.5)
    assert mine.failures == gelu.failures == ["picture: texture"]
    said = "\n".join(sentences.lines(scoreboard))
    assert "undecided, p 1 after" in said
    assert "; better" not in said
    assert "; worse" not in said


def test_an_activation_that_others_lack_data_of_does_not_change_their_ranks():
    stored = {s.label: s.rank for s in scores.load().standings}
    scoreboard = scores.load(copies("sine", "mine", ["text", "picture"]))
    ranks = {s.label: s.rank for s in scoreboard.standings if not s.own}
    assert ranks == stored  # on all tasks, which mine does not have


def test_gelu_comes_first_with_the_ends_of_its_ranges():
    gelu, *others = scores.load().standings
    assert gelu.label == "gelu"
    edges = {score.name for score in gelu.on if score.edge}
    assert edges == {
        "equation: chosen by loss, block waves",
        "equation: chosen by loss, block hills",
        *(f"picture: {data}" for task, data in STORED if task == "picture"),
        *("tabular: magic", "tabular: spambase"),
    }

    # Further data sets inherit the settings of the first
    inherited = 0
    for standing in others:
        marks = {score.name: (score.edge, score.unstable) for score in standing.on}
        for first, further in (
            (
                "picture: CIFAR-10 mosaic",
                ("photograph", "page of text", "texture", "cat", "coffee", "tissue"),
            ),
            ("classifier: MNIST", ("Fashion-MNIST",)),
            ("tabular: letter", ("satimage", "penbased", "optdigits")),
            ("tabular: magic", ("spambase",)),
            ("autoencoder: MNIST", ("Fashion-MNIST",)),
            ("convolutions: CIFAR-10", ("CIFAR-100",)),
        ):
            for data in further:
                name = f"{first.partition(': ')[0]}: {data}"
                if name in marks:
                    assert marks[name] == marks[first]
                    inherited += marks[name][0]
    assert inherited == 51


def test_62_of_111_selections_are_marked_as_unstable():
    firsts = (
        *("text: Bible", "equation", "picture: CIFAR-10", "classifier: MNIST"),
        *("tabular: letter", "tabular: magic", "tagging", "autoencoder: MNIST"),
    )
    marks = []
    for standing in scores.load().standings:
        for score in standing.on:
            # CIFAR-100 has the settings of CIFAR-10
            if score.name.startswith(firsts) or score.name == "convolutions: CIFAR-10":
                marks.append(score.unstable)
    assert (sum(marks), len(marks)) == (62, 111)
