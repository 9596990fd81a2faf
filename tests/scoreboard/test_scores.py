"""The scoreboard: how activations compare over tasks, next to a user's own."""

import copy
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tables_by_hand
from actlab.datamodules.pixels import PixelDataModule
from actlab.scoreboard import page, scores, sentences
from actlab.scoreboard.tables import labels_of
from kept_results import program

UNIT = "model.activation"
FOLDER = Path(__file__).parents[2] / "results/scoreboard"
SEEDS = [str(seed) for seed in range(5, 13)]


def row(label, values, **column):
    numbers = [math.inf if value is None else value for value in values]
    middle = sorted(numbers)[len(numbers) // 2]
    cell = tables_by_hand.cell(
        dict(zip(SEEDS, values, strict=True)),
        None if math.isinf(middle) else middle,
        percent=False,
        **column,
    )
    return {"point": {UNIT: label}, "chosen": {}, "edges": [], "columns": [cell]}


def spread(middle):
    return [middle * (1 + 0.01 * number) for number in range(-4, 4)]


def noisy(middle):
    return [middle + 0.1 * number for number in range(-4, 4)]  # decibels


@pytest.fixture
def kept(tmp_path, state):
    """A scoreboard of three tasks, with GELU, ReLU and sine."""
    tables = {
        "words": [row("gelu", spread(1.0)), row("relu", spread(1.1)), row("sine", spread(0.9))],
        "waves": [row("gelu", spread(0.1)), row("relu", spread(2.0)), row("sine", spread(0.05))],
        "photo": [
            row(x, noisy(y), mode="max", scale="decibels")
            for x, y in (("gelu", 20.0), ("relu", 17.0), ("sine", 30.0))
        ],
    }
    for name, rows in tables.items():
        tables_by_hand.leave(tmp_path, tables_by_hand.table(name, UNIT, rows, reference="gelu"))
    data = {name: {"table": str(tmp_path / name)} for name in tables}
    task = {"study": "pinn_helmholtz"}
    tasks = {
        "text": {**task, "title": "text", "data": {"words": data["words"]}},
        "equation": {
            **task,
            "title": "equation",
            "data": {"waves": {**data["waves"], "chance": 1.0}},
        },
        "picture": {**task, "title": "picture", "data": {"photo": data["photo"]}},
    }
    file = {"reference": "gelu", "equivalence": 1.02, "tasks": tasks}
    state(file)
    return {
        (name, data): tables[data]
        for name, data in (("text", "words"), ("equation", "waves"), ("picture", "photo"))
    }


def test_the_stored_scoreboard_and_its_tuning_are_what_the_tables_give():
    written = page.to_markdown(scores.load())
    assert (FOLDER / "scoreboard.md").read_text(encoding="utf-8") == written
    assert (FOLDER / "processors.md").read_text(encoding="utf-8") == program(
        "scoreboard/processors"
    ).page()
    tuning = program("scoreboard/tuning")
    assert (FOLDER / "tuning.md").read_text(encoding="utf-8") == tuning.page()
    some = [0.3, 0.1, 0.7, 0.2]
    for number in range(1, 5):
        expected = np.mean([min(drawn) for drawn in itertools.combinations(some, number)])
        assert tuning.best_of(some, number) == pytest.approx(expected)


VALUES = {
    "text: Bible": ("gpt_gates", "test/loss@last", 3.15),
    "text: C sources": ("scoreboard/glibc", "test/loss@last", 3.63),
    "equation: chosen by loss": ("scoreboard/equations", "test/relative_error@last", 1.0),
    "picture: CIFAR-10 mosaic": ("inr_image", "test/psnr@last", 12.26),
    "picture: photograph": ("scoreboard/photograph", "test/psnr@last", 10.86),
    "picture: page of text": ("scoreboard/page", "test/psnr@last", 10.89),
    "picture: texture": ("scoreboard/texture", "test/psnr@last", 12.89),
    "classifier: MNIST": ("scoreboard/mnist", "test/error@last", 0.886),
    "classifier: Fashion-MNIST": ("scoreboard/fashion_mnist", "test/error@last", 0.899),
}


def test_ratios_of_the_stored_scoreboard_are_recomputed_from_the_runs():
    for standing in json.loads((FOLDER / "scoreboard.json").read_text())["standings"]:
        for data in standing["on"]:
            name, _, block = data["name"].partition(", block ")
            folder, column, chance = VALUES[name]
            runs = pd.read_csv(FOLDER.parent / folder / "values.csv")
            runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
            runs = runs[(runs[column] > chance) if "psnr" in column else (runs[column] < chance)]
            errors = (
                np.log(runs[column]) if "psnr" not in column else -runs[column] * np.log(10) / 10
            )
            means = errors.groupby(runs[UNIT]).mean()
            if data["ratio"]:
                ratio = np.exp(means[standing["label"]] - means["gelu"])
                assert data["ratio"]["value"] == pytest.approx(ratio, rel=5e-3), data["name"]
            else:
                assert (runs[UNIT] == standing["label"]).sum() < 8


def test_the_sample_of_cifar10_has_the_picture_of_the_scoreboard(tmp_path):
    """One stored run of the Gaussian ended at the mean colour; its distance tells images apart."""
    data = PixelDataModule(str(FOLDER.parents[1] / "data/samples/cifar10"), cache_dir=str(tmp_path))
    ended = pd.read_csv(FOLDER.parent / "inr_image/values.csv").query(
        f"`{UNIT}` == 'gauss' and chosen == 1"
    )
    found = program("scoreboard/pictures").chance(data.image.permute(1, 2, 0).numpy())
    assert found == pytest.approx(ended["test/psnr@last"].min(), abs=1e-3)


def logs_of(folder, column, block=None):
    """The mean logarithm of an error ÷ that of GELU by activation, over chosen settings."""
    runs = pd.read_csv(FOLDER.parent / folder / "values.csv")
    runs = runs[(runs["chosen"] == 1) & ((runs["block"] == block) if block else True)]
    means = np.log(runs[column]).groupby(runs[UNIT]).mean()
    return means - means["gelu"]


def test_what_the_page_says_of_orders_on_further_data_follows_from_the_runs():
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    first, second = (
        logs_of(name, "test/loss@last", "plain") for name in ("gpt_gates", "scoreboard/glibc")
    )
    assert "All ten rank the same on C sources as on the Bible" in text
    assert list(first.sort_values().index) == list(second.sort_values().index)
    assert len(first) == 10
    assert (
        f"logarithms of ratios {np.polyfit(first, second[first.index], 1)[0]:.1f} times as large"
        in text
    )
    first, second = (
        logs_of(name, "test/loss@last", "gated") for name in ("gpt_gates", "scoreboard/glibc")
    )
    assert first.idxmin() == second.idxmin() == "sine"
    assert "the others differ by less than 2 % on the Bible" in text
    assert first.drop("sine").max() - first.drop("sine").min() < np.log(1.02)
    assert set(second.nsmallest(4).index) == {"sine", "silu", "mish", "tanh"}
    runs = pd.read_csv(FOLDER / "glibc/values.csv").query("block == 'gated'")
    medians = runs.groupby(UNIT)["test/loss@last"].median()
    assert "(median losses 1.62 to 1.65, GELU 1.69)" in text
    three = medians[["silu", "mish", "tanh"]]
    assert [f"{loss:.2f}" for loss in (three.min(), three.max(), medians["gelu"])] == [
        "1.62",
        "1.65",
        "1.69",
    ]
    higher = pd.read_csv(FOLDER / "glibc/higher_rate.csv").groupby(UNIT)["test/loss@last"].median()
    assert f"GELU has {higher['gelu']:.2f} and ReLU {higher['relu']:.2f} " in text
    assert higher.index.size == 2


def test_what_the_page_says_of_equations_and_the_classifier_is_in_the_scoreboard():
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    standings = json.loads((FOLDER / "scoreboard.json").read_text())["standings"]
    of = {
        (standing["label"], data["name"].rpartition(" ")[2]): data["ratio"]
        for standing in standings
        for data in standing["on"]
        if data["ratio"]
    }

    def shown(label, block, digits):
        ends = [of[label, block][end] for end in ("value", "low", "high")]
        value, low, high = (
            f"{end:.{digits}{'g' if digits == 2 and end >= 2 else 'f'}}" for end in ends
        )
        return f"{value} [{low}, {high}]"

    waves = shown("sine", "waves", 2)
    of_sines = "An equation whose solution is made of sines.**"
    assert f"{of_sines} Sine has {waves} times GELU's error." in text
    digits, clothes = shown("sine", "MNIST", 2), shown("sine", "Fashion-MNIST", 2)
    assert f"has {digits} times GELU's error on MNIST, and {clothes} times on Fashion-MNIST" in text
    assert f"a ridge.** Sine has {shown('sine', 'hills', 2)} times GELU's error." in text
    assert f"the others are: SiLU {shown('silu', 'hills', 2)}, Mish" in text
    runs = pd.read_csv(FOLDER / "equations/values.csv").query("block == 'hills'")
    medians = runs.groupby(UNIT)["test/relative_error@last"].median()
    assert medians.idxmin() == "gelu"
    assert f"GELU has the lowest error, {medians['gelu']:.4f}." in text


def test_what_the_page_says_of_processors_follows_from_the_runs():
    rows = [
        line.split("|")[1:-1] for line in (FOLDER / "processors.md").read_text().splitlines()[-4:]
    ]
    same = {row[0].strip(): float(row[3]) for row in rows}
    other = [float(row[4]) for row in rows]
    assert round(100 * same.pop("equation")) == 2
    assert max(same.values()) < 0.001
    assert [round(100 * min(other)), round(100 * max(other))] == [2, 16]


def own(kept, label, **rows):
    """Tables of a user, with a row of the label on each data set: a known one's, or values."""
    tables = {}
    for (task, data), known in kept.items():
        given = rows.get(data, "sine")
        mine = (
            copy.deepcopy(next(r for r in known if r["point"][UNIT] == given))
            if isinstance(given, str)
            else given
        )
        mine["point"][UNIT] = label
        table = tables_by_hand.table(task, UNIT, [mine], own=[label])
        tables[task, data] = tables_by_hand.as_record(table)
    return tables


def test_activations_stand_in_the_order_of_their_ratios_failures_last(kept):
    sine, relu = scores.load().standings
    assert (sine.label, relu.label) == ("sine", "relu")
    assert [str(data.ratio)[:5] for data in sine.on] == ["0.900", "0.500", "0.100"]
    assert sine.over.here.value == pytest.approx((0.9 * 0.5 * 0.1) ** (1 / 3), rel=1e-3)
    assert relu.failures == ["equation: waves"]  # where no run is better than chance
    assert relu.over.tasks == 2
    assert "times the error of gelu on 2 tasks, 2 data sets" in sentences.sentence(relu, "gelu")
    assert sentences.sentence(relu, "gelu").endswith("Failed on equation: waves.")


def test_a_known_activation_under_another_name_lands_where_it_stands(kept):
    scoreboard = scores.load(own(kept, "mine"))
    standings = {standing.label: standing for standing in scoreboard.standings}
    assert standings["mine"].over == standings["sine"].over
    assert [*standings][2:] == ["relu"]
    said = "\n".join(sentences.lines(scoreboard))
    assert "text: words: 0.900 [" in said
    assert "better, p " in said
    assert "of 3, without gelu." in said


def test_a_bad_activation_is_last_and_one_that_diverges_is_marked(kept):
    diverging = row("mine", [None] * 5 + [0.9] * 3)
    mine = own(kept, "mine", words=diverging, waves=row("mine", spread(3.0)), photo="relu")
    scoreboard = scores.load(mine)
    last = scoreboard.standings[-1]
    assert last.label == "mine"
    assert last.over is None  # one task is left
    assert last.failures == ["text: words", "equation: waves"]
    assert "text: words: failed in 5 of 8 runs." in sentences.lines(scoreboard)


def test_a_run_that_diverged_is_left_out_of_the_ratio_and_said(kept):
    few = row("mine", [None, *spread(0.9)[1:]])
    said = sentences.lines(scores.load(own(kept, "mine", words=few)))
    assert any(
        line.startswith("text: words: 0.9") and "1 of 8 runs failed" in line for line in said
    )


def test_the_word_on_a_data_set_counts_the_runs_that_failed(kept):
    """Three of eight runs fail, the others are a little better: p and the word cover all runs."""
    scoreboard = scores.load(own(kept, "mine", words=row("mine", [None] * 3 + spread(0.99)[2:7])))
    (mine,) = [standing for standing in scoreboard.standings if standing.own]
    words = next(score for score in mine.on if score.name == "text: words")
    assert words.ratio.value < 1
    assert words.better < 0.5
    assert "; worse, p 0.001 after" in sentences.verdict(replace(words, p=0.001), "gelu")
    assert "; undecided, p 0.9 after" in sentences.verdict(replace(words, p=0.9), "gelu")


def test_the_files_hold_every_ratio_and_mark_ones_own(kept, tmp_path):
    files = page.write(scores.load(own(kept, "mine")), tmp_path / "out")
    assert [file.name for file in files] == [
        f"scoreboard.{kind}" for kind in ("md", "json", "svg", "png")
    ]
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


def test_an_activation_has_one_label_however_studies_spell_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spellings = (
        ("./mine.py:U", "elu", {"name": "soi", "p": 1, "q": 2}, "./other.py:V"),
        (
            str(tmp_path / "mine.py:U"),
            {"name": "elu"},
            {"q": 2, "p": 1, "name": "soi"},
            "./more.py:V",
        ),
    )
    stored = []
    for values in spellings:
        rows = [row(value, spread(0.1)) for value in values]
        stored.append(tables_by_hand.as_record(tables_by_hand.table("a study", UNIT, rows)))
    labels = [*labels_of(stored).values()]
    assert labels == ["U", "elu", "soi(p=1, q=2)", "./other.py:V", "./more.py:V"]
