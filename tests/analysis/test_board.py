"""The board: where activations stand, beside rows of one's own."""

import copy
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import boards_by_hand
from actlab.analysis import board, scoreboard
from actlab.datamodules.pixels import PixelDataModule
from actlab.reports import board as report
from kept_results import program

UNIT = "model.activation"
BOARD = Path(__file__).parents[2] / "results/board"
SEEDS = [str(seed) for seed in range(5, 13)]


def row(label, values, **column):
    numbers = [math.inf if value is None else value for value in values]
    middle = sorted(numbers)[len(numbers) // 2]
    cell = boards_by_hand.cell(
        dict(zip(SEEDS, values, strict=True)), None if math.isinf(middle) else middle, percent=False, **column
    )
    return {"point": {UNIT: label}, "chosen": {}, "edges": [], "columns": [cell]}


def spread(middle):
    return [middle * (1 + 0.01 * number) for number in range(-4, 4)]


def noisy(middle):
    return [middle + 0.1 * number for number in range(-4, 4)]  # decibels


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A board of three tasks, with GELU, ReLU and sine."""
    tables = {
        "words": [row("gelu", spread(1.0)), row("relu", spread(1.1)), row("sine", spread(0.9))],
        "waves": [row("gelu", spread(0.1)), row("relu", spread(2.0)), row("sine", spread(0.05))],
        "photo": [
            row(x, noisy(y), mode="max", scale="decibels")
            for x, y in (("gelu", 20.0), ("relu", 17.0), ("sine", 30.0))
        ],
    }
    for name, rows in tables.items():
        boards_by_hand.leave(tmp_path, boards_by_hand.table(name, UNIT, rows, reference="gelu"))
    data = {name: {"table": str(tmp_path / name)} for name in tables}
    task = {"study": "pinn_helmholtz"}
    tasks = {
        "text": {**task, "title": "text", "data": {"words": data["words"]}},
        "equation": {**task, "title": "equation", "data": {"waves": {**data["waves"], "chance": 1.0}}},
        "picture": {**task, "title": "picture", "data": {"photo": data["photo"]}},
    }
    file = {"reference": "gelu", "equivalence": 1.02, "tasks": tasks}
    monkeypatch.setattr(board, "board_file", lambda: file)
    return {
        (name, data): tables[data]
        for name, data in (("text", "words"), ("equation", "waves"), ("picture", "photo"))
    }


def test_the_kept_board_and_its_tuning_are_what_the_tables_give():
    scores = board.scores()
    assert (BOARD / "board.md").read_text(encoding="utf-8") == report.to_markdown(scores)
    assert (BOARD / "processors.md").read_text(encoding="utf-8") == program("board/processors").page()
    tuning = program("board/tuning")
    assert (BOARD / "tuning.md").read_text(encoding="utf-8") == tuning.page()
    some = [0.3, 0.1, 0.7, 0.2]
    for number in range(1, 5):
        expected = np.mean([min(drawn) for drawn in itertools.combinations(some, number)])
        assert tuning.best_of(some, number) == pytest.approx(expected)


VALUES = {
    "text: Bible": ("gpt_gates", "test/loss@last", 3.15),
    "text: C sources": ("board/glibc", "test/loss@last", 3.63),
    "equation: chosen by loss": ("board/equations", "test/relative_error@last", 1.0),
    "picture: CIFAR-10 mosaic": ("inr_image", "test/psnr@last", 12.26),
    "picture: photograph": ("board/photograph", "test/psnr@last", 10.86),
    "picture: page of text": ("board/page", "test/psnr@last", 10.89),
    "picture: texture": ("board/texture", "test/psnr@last", 12.89),
    "classifier: MNIST": ("board/mnist", "test/error@last", 0.886),
    "classifier: Fashion-MNIST": ("board/fashion_mnist", "test/error@last", 0.899),
}


def test_ratios_of_the_kept_board_are_recomputed_from_the_runs():
    for standing in json.loads((BOARD / "board.json").read_text())["standings"]:
        for data in standing["on"]:
            name, _, block = data["name"].partition(", block ")
            folder, column, chance = VALUES[name]
            runs = pd.read_csv(BOARD.parent / folder / "values.csv")
            runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
            runs = runs[(runs[column] > chance) if "psnr" in column else (runs[column] < chance)]
            errors = np.log(runs[column]) if "psnr" not in column else -runs[column] * np.log(10) / 10
            means = errors.groupby(runs[UNIT]).mean()
            if data["ratio"]:
                ratio = np.exp(means[standing["label"]] - means["gelu"])
                assert data["ratio"]["value"] == pytest.approx(ratio, rel=5e-3), data["name"]
            else:
                assert (runs[UNIT] == standing["label"]).sum() < 8


def test_the_sample_of_cifar10_has_the_picture_of_the_board(tmp_path):
    """One kept run of the Gaussian ended at the mean colour, whose distance tells pictures apart."""
    data = PixelDataModule(str(BOARD.parents[1] / "data/samples/cifar10"), cache_dir=str(tmp_path))
    ended = pd.read_csv(BOARD.parent / "inr_image/values.csv").query(f"`{UNIT}` == 'gauss' and chosen == 1")
    found = program("board/pictures").chance(data.image.permute(1, 2, 0).numpy())
    assert found == pytest.approx(ended["test/psnr@last"].min(), abs=1e-3)


def logs_of(folder, column, block=None):
    """The mean logarithm of an error ÷ that of GELU by activation, over chosen settings."""
    runs = pd.read_csv(BOARD.parent / folder / "values.csv")
    runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
    means = np.log(runs[column]).groupby(runs[UNIT]).mean()
    return means - means["gelu"]


def test_what_the_page_says_of_orders_on_further_data_follows_from_the_runs():
    text = (BOARD / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    first, second = (logs_of(name, "test/loss@last", "plain") for name in ("gpt_gates", "board/glibc"))
    assert "that of all ten plain transformers on C sources is that on the Bible" in text
    assert list(first.sort_values().index) == list(second.sort_values().index)
    assert len(first) == 10
    assert f"logarithms of ratios {np.polyfit(first, second[first.index], 1)[0]:.1f} times as large" in text
    first, second = (logs_of(name, "test/loss@last", "gated") for name in ("gpt_gates", "board/glibc"))
    assert first.idxmin() == second.idxmin() == "sine"
    assert "the others differ by less than 2 % on the Bible" in text
    assert first.drop("sine").max() - first.drop("sine").min() < np.log(1.02)
    assert set(second.nsmallest(4).index) == {"sine", "silu", "mish", "tanh"}
    runs = pd.read_csv(BOARD / "glibc/values.csv").query("block == 'gated'")
    medians = runs.groupby(UNIT)["test/loss@last"].median()
    assert "(median losses 1.62 to 1.65, GELU 1.69)" in text
    three = medians[["silu", "mish", "tanh"]]
    assert [f"{loss:.2f}" for loss in (three.min(), three.max(), medians["gelu"])] == ["1.62", "1.65", "1.69"]
    higher = pd.read_csv(BOARD / "glibc/higher_rate.csv").groupby(UNIT)["test/loss@last"].median()
    assert f"GELU has {higher['gelu']:.2f} and ReLU {higher['relu']:.2f} " in text
    assert higher.index.size == 2


def test_what_the_page_says_of_equations_and_the_classifier_stands_in_the_board():
    text = (BOARD / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    standings = json.loads((BOARD / "board.json").read_text())["standings"]
    of = {
        (standing["label"], data["name"].rpartition(" ")[2]): data["ratio"]
        for standing in standings
        for data in standing["on"]
        if data["ratio"]
    }

    def shown(label, block, digits):
        ends = [of[label, block][end] for end in ("value", "low", "high")]
        value, low, high = (
            f"{end:.{digits}{'g' if digits == 2 and end >= 2 else 'f'}}".lstrip("0") for end in ends
        )
        return f"{value} [{low}, {high}]"

    waves = shown("sine", "waves", 2)
    assert f"it has {waves} times GELU's error where the solution of an equation is of sines" in text
    digits, clothes = shown("sine", "MNIST", 2), shown("sine", "Fashion-MNIST", 2)
    assert f"it has {digits} times GELU's error on MNIST, and {clothes} on Fashion-MNIST" in text
    assert f"a ridge, {shown('sine', 'hills', 2)} times" in text
    assert f"SiLU has {shown('silu', 'hills', 2)} times that" in text
    runs = pd.read_csv(BOARD / "equations/values.csv").query("block == 'hills'")
    medians = runs.groupby(UNIT)["test/relative_error@last"].median()
    assert medians.idxmin() == "gelu"
    assert f"{medians['gelu']:.4f}".lstrip("0") in text


def test_what_the_page_says_of_processors_follows_from_the_runs():
    rows = [line.split("|")[1:-1] for line in (BOARD / "processors.md").read_text().splitlines()[-4:]]
    same = {row[0].strip(): float(row[3]) for row in rows}
    other = [float(row[4]) for row in rows]
    assert round(100 * same.pop("equation")) == 2
    assert max(same.values()) < 0.001
    assert [round(100 * min(other)), round(100 * max(other))] == [2, 16]


def own(kept, label, **rows):
    """Tables of one's own, with a row of the label on each data set: a known one's, or given values."""
    tables = {}
    for (task, data), known in kept.items():
        given = rows.get(data, "sine")
        mine = (
            copy.deepcopy(next(r for r in known if r["point"][UNIT] == given))
            if isinstance(given, str)
            else given
        )
        mine["point"][UNIT] = label
        one = boards_by_hand.table(task, UNIT, [mine], own=[label])
        tables[task, data] = boards_by_hand.as_record(one)
    return tables


def test_activations_stand_in_the_order_of_their_ratios_failures_last(kept):
    sine, relu = board.scores().standings
    assert (sine.label, relu.label) == ("sine", "relu")
    assert [str(data.ratio)[:5] for data in sine.on] == ["0.900", "0.500", "0.100"]
    assert sine.over.here.value == pytest.approx((0.9 * 0.5 * 0.1) ** (1 / 3), rel=1e-3)
    assert relu.failures == ["equation: waves"]  # where no run is better than chance
    assert relu.over.tasks == 2
    assert "times the error of gelu on 2 tasks, 2 data sets" in board.sentence(relu, "gelu")
    assert board.sentence(relu, "gelu").endswith("Failed on equation: waves.")


def test_a_known_activation_under_another_name_lands_where_it_stands(kept):
    scores = board.scores(own(kept, "mine"))
    standings = {standing.label: standing for standing in scores.standings}
    assert standings["mine"].over == standings["sine"].over
    assert {scores.standings[0].label, scores.standings[1].label} == {"mine", "sine"}
    said = "\n".join(board.lines(scores))
    assert "text: words: 0.900 [" in said
    assert "better, p " in said
    assert "beside gelu" in said


def test_a_bad_activation_is_last_and_one_that_diverges_is_marked(kept):
    diverging = row("mine", [None] * 5 + [0.9] * 3)
    scores = board.scores(own(kept, "mine", words=diverging, waves=row("mine", spread(3.0)), photo="relu"))
    last = scores.standings[-1]
    assert last.label == "mine"
    assert last.over is None  # one task is left
    assert last.failures == ["text: words", "equation: waves"]
    assert "text: words: failed in 5 of 8 runs." in board.lines(scores)


def test_a_run_that_diverged_is_left_out_of_the_ratio_and_said(kept):
    few = row("mine", [None, *spread(0.9)[1:]])
    said = board.lines(board.scores(own(kept, "mine", words=few)))
    assert any(line.startswith("text: words: 0.9") and "1 of 8 runs failed" in line for line in said)


def test_the_word_on_a_data_set_counts_the_runs_that_failed(kept):
    """Three of eight runs fail, the others are a little better: p is of all runs, and so is the word."""
    scores = board.scores(own(kept, "mine", words=row("mine", [None] * 3 + spread(0.99)[2:7])))
    words = next(data for data, _ in scores.verdicts("mine") if data.name == "text: words")
    assert words.ratio.value < 1
    assert words.better.value < 0.5
    assert "; worse, p 0.001 after" in board.verdict(words, 0.001, "gelu")
    assert "; undecided, p 0.9 after" in board.verdict(words, 0.9, "gelu")


def test_the_files_hold_every_ratio_and_mark_ones_own(kept, tmp_path):
    files = report.write(board.scores(own(kept, "mine")), tmp_path / "out")
    assert [file.name for file in files] == ["board.md", "board.json", "board.svg", "board.png"]
    text = files[0].read_text()
    assert "| relu | 1.48 [" in text
    assert ", on 2 tasks | 1.10 [" in text
    assert "| failed |" in text
    standings = json.loads(files[1].read_text())["standings"]
    assert {standing["label"]: standing["own"] for standing in standings} == {
        "mine": True,
        "sine": False,
        "relu": False,
    }
    assert files[2].read_text().count("over these tasks") == 1


def labels_of(*tables):
    """The labels of each table's activations, and those that are the user's."""
    records = map(boards_by_hand.as_record, tables)
    found = scoreboard.board_of([scoreboard.StoredTable(Path(one.study), one) for one in records])
    return [[*task.places] for task in found.tasks], found.users


def test_two_activations_of_one_name_are_two():
    """The files of three studies have the same name; those of the first and third the same content."""
    mine, tables = "./mine.py:Mine", []
    for name, digit in (("a", "1"), ("b", "2"), ("c", "1")):
        rows = [row("gelu", spread(0.1)), row(mine, spread(0.2))]
        tables.append(boards_by_hand.table(name, UNIT, rows, own=[mine], sources={mine: 64 * digit}))
    labels, users = labels_of(*tables)
    assert labels == [["gelu", "Mine (111111)"], ["gelu", "Mine (222222)"], ["gelu", "Mine (111111)"]]
    assert users == {"Mine (111111)", "Mine (222222)"}


def test_an_activation_has_one_label_however_studies_name_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spellings = (
        ("a", "./mine.py:U", "elu", {"name": "soi", "p": 1, "q": 2}, "./other.py:V"),
        ("b", str(tmp_path / "mine.py:U"), {"name": "elu"}, {"q": 2, "p": 1, "name": "soi"}, "./more.py:V"),
    )
    tables = [
        boards_by_hand.table(name, UNIT, [row(value, spread(0.1)) for value in values])
        for name, *values in spellings
    ]
    same = ["U", "elu", "soi(p=1, q=2)"]
    assert labels_of(*tables)[0] == [[*same, "./other.py:V"], [*same, "./more.py:V"]]
