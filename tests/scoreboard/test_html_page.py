"""The scoreboard in a browser: it shows every number, sorts, filters, and text stays text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actlab.reports import activation_figures, style
from actlab.reports.canvas import mpl
from actlab.scoreboard import figure, page
from actlab.scoreboard.scores import Rank, Score, Scoreboard, Standing, TaskScore
from actlab.scoreboard.statistic import Ratio
from drawn_texts import misplaced
from html_pages import Page

HOSTILE = '"><script>alert(1)</script>'
DATA = ("text: Bible", "text: C sources", "equation: waves")
TASKS = (
    *("text", "equation", "picture", "classifier"),
    *("tabular", "tagging", "autoencoder", "convolutions"),
)
ONE = Ratio(1.0, 1.0, 1.0)


def score(name, ratio, **values):
    default: dict[str, Any] = {
        "fails": ratio is None,
        "runs": 8,
        "failed": 0 if ratio else 8,
        "edge": False,
        "setting": "lr 0.01, gain 1",
        "unstable": False,
        "better": 0.25,
        "p": None,
    }
    return Score(name=name, ratio=ratio, **(default | values))


def standing(label, mean, ratios, by_user=False, **values):
    """An activation with a ratio, or None for a failure, on each data set."""
    text, equation = ratios[0], ratios[2]
    tasks = {
        "text": TaskScore(better=0.9, rank=1.5, ratio=text, fails=text is None),
        "equation": TaskScore(better=0.2, rank=2.0, ratio=equation, fails=equation is None),
    }
    return Standing(
        label=label,
        own=by_user,
        rank=Rank(place=round(mean), among=4, mean=mean, tasks=2, datasets=3),
        better=0.5,
        tasks=tasks,
        over=None,
        on=tuple(score(*pair, **values) for pair in zip(DATA, ratios, strict=True)),
    )


@pytest.fixture
def scoreboard():
    """Four activations: a reference, sine, one that fails, and a user's with a hostile name."""
    low, high = Ratio(0.5, 0.4, 0.625), Ratio(10.0, 8.0, 12.5)
    standings = (
        standing("gelu", 2.0, [ONE, ONE, ONE]),
        standing("sine", 1.0, [low, high, high], edge=True),
        standing(HOSTILE, 3.0, [high, low, low], by_user=True),
        standing("relu", 4.0, [Ratio(2.0, 1.5, 2.5), None, None], unstable=True),
    )
    return Scoreboard(
        version=1,
        reference="gelu",
        best="sine",
        equivalence=1.02,
        least_gain=0.1,
        standings=standings,
        not_run=(),
    )


@pytest.fixture
def file(scoreboard, tmp_path, undrawn):
    curves = activation_figures.sampled(s.label for s in scoreboard.standings)
    return page.write(scoreboard, tmp_path / "out", curves)[-1]


def labels(window):
    """The names of the visible rows, in their order."""
    return window.locator(".ranking > tbody:visible .name").all_inner_texts()


def heads(window):
    texts = window.locator(".ranking > thead th:visible").all_inner_texts()
    return [" ".join(text.split()).rstrip(" ↑↓↕") for text in texts]


@pytest.mark.usefixtures("undrawn")
def test_the_stored_page_is_what_the_command_writes(succeed, tmp_path):
    """With a row for each activation of scoreboard.json, and all its ratios and settings."""
    succeed("scoreboard", "--runs-dir", tmp_path)
    stored = Path(__file__).parents[2] / "results/scoreboard"
    for name in ("index.html", "scoreboard.md"):
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert (stored / name).read_text(encoding="utf-8") == written

    read = Page(stored / "index.html")
    text = read.text()
    standings = json.loads((stored / "scoreboard.json").read_text())["standings"]
    assert len(standings) > 5
    drawn = [values["aria-label"] for tag, values in read.elements if tag == "svg"]
    assert len(drawn) == len(standings)  # the stored ones are names of the registry
    for standing in standings:
        assert f"Settings and runs of {standing['label']}" in text
        assert f"Curve of {standing['label']} from -3 to 3" in drawn
        for score in standing["on"]:
            assert score["name"] in text
            assert score["setting"] in text
            if score["ratio"] and standing["label"] != "gelu":
                assert str(Ratio(**score["ratio"])) in text


def test_the_page_names_its_version_and_what_was_not_run(scoreboard, tmp_path, undrawn):
    later = replace(scoreboard, version=2, not_run=("tagging", "convolutions: CIFAR-100"))
    text = page.write(later, tmp_path / "out", {})[-1].read_text(encoding="utf-8")
    assert "actlab scoreboard, version 2" in text
    assert "Stated, not run yet: tagging; convolutions: CIFAR-100." in text


def test_a_cell_has_ratio_interval_failures_marks_and_settings(file):
    read = Page(file)
    text = read.text()
    for words in (
        "0.500 [0.400, 0.625]",
        "fails unstable",
        "8 of 8 failed",
        "lr 0.01, gain 1",
        "Edge. The selected setting is an end of what was tried.",
        "Unstable. Fewer than 80 % of",
    ):
        assert words in text
    notes = [values["data-note"] for _, values in read.elements if "data-note" in values]
    assert len(notes) == 4 * (1 + 2 + 3)  # rank, tasks, data sets
    assert "text: C sources: failed in 8 of 8 runs. Selected setting: lr 0.01, gain 1." in notes
    better = "A run is better than a run of gelu with a probability of 0.90."
    assert f"Mean rank 1.5 on text. {better} Selected setting: lr 0.01, gain 1." in notes


def test_names_of_activations_stay_text_and_the_users_is_bold(file):
    read = Page(file)
    assert read.count("script") == 1  # ours
    assert HOSTILE in read.text("summary")
    assert HOSTILE in read.text("b")
    own = [values["class"] for tag, values in read.elements if tag == "tr" and "class" in values]
    assert own.count("own") == 1
    sources = [values.get("src") for tag, values in read.elements if tag != "a"]
    assert set(sources) == {None}


def test_curves_are_values_of_deterministic_activations_of_the_registry():
    curves = activation_figures.sampled(["relu", "soi", "Mine", "identity"])
    assert list(curves) == ["relu", "identity"]
    for x, y in curves["relu"]:
        assert y == max(x, 0.0)
    assert (curves["identity"][0], curves["identity"][-1]) == ((-3.0, -3.0), (3.0, 3.0))


def test_rows_are_sorted_by_each_column_with_pointer_and_keys(file, opened):
    window = opened(file, viewport={"width": 1280, "height": 900})
    assert labels(window) == ["sine", "gelu", HOSTILE, "relu"]
    rank = window.get_by_role("columnheader", name="mean rank")
    assert rank.get_attribute("aria-sort") == "ascending"

    # Failures come after ratios
    equation = window.get_by_role("columnheader", name="equation")
    equation.get_by_role("button").click()
    assert labels(window) == [HOSTILE, "gelu", "sine", "relu"]
    assert (rank.get_attribute("aria-sort"), equation.get_attribute("aria-sort")) == (
        None,
        "ascending",
    )
    equation.get_by_role("button").press("Enter")
    assert labels(window) == ["relu", "sine", "gelu", HOSTILE]
    assert equation.get_attribute("aria-sort") == "descending"
    rank.get_by_role("button").press("Space")
    assert labels(window) == ["sine", "gelu", HOSTILE, "relu"]


def test_an_activation_without_a_ratio_is_last_in_both_directions(scoreboard, tmp_path, opened):
    *rest, relu = scoreboard.standings
    nothing = {"equation": replace(relu.tasks["equation"], fails=False)}
    data = (score("equation: waves", None, fails=False),)
    few = replace(relu, label="few", rank=None, tasks=nothing, on=data)
    with_few = replace(scoreboard, standings=(*rest, relu, few))
    window = opened(page.write(with_few, tmp_path)[-1])
    button = window.get_by_role("columnheader", name="equation").get_by_role("button")
    for second_last in ("relu", HOSTILE):
        button.click()
        assert labels(window)[-2:] == [second_last, "few"]
    window.get_by_role("columnheader", name="mean rank").get_by_role("button").click()
    assert labels(window)[-1] == "few"


def test_rows_and_columns_are_filtered(file, opened):
    window = opened(file)
    assert heads(window) == ["activation", "mean rank", "text", "equation"]
    name = window.get_by_label("Activation")
    name.fill("ELU")
    assert labels(window) == ["gelu", "relu"]
    assert window.get_by_role("status").inner_text() == "2 of 4 activations"
    name.fill("<script>")
    assert labels(window) == [HOSTILE]
    name.fill("")

    # Data sets of a task are further columns
    buttons = window.get_by_role("group", name="Data sets of")
    buttons.get_by_role("button", name="text").press("Space")
    data = ["text Bible", "text C sources"]
    assert heads(window) == ["activation", "mean rank", "text", *data, "equation"]
    window.get_by_role("columnheader", name="C sources").get_by_role("button").click()
    assert labels(window) == [HOSTILE, "gelu", "sine", "relu"]
    tasks = window.get_by_role("group", name="Tasks").get_by_role("button", name="text")
    tasks.click()
    assert tasks.get_attribute("aria-pressed") == "false"
    assert heads(window) == ["activation", "mean rank", *data, "equation"]


def test_settings_are_read_with_pointer_keys_and_in_the_details(file, opened):
    window = opened(file, viewport={"width": 1280, "height": 900})
    note = window.locator(".note")
    window.locator("tbody:first-of-type td[data-of=text]:visible").first.hover()
    assert "lr 0.01, gain 1" in note.inner_text()
    window.mouse.move(0, 0)
    assert not note.is_visible()

    # One stop of the Tab key, and arrows between visible cells
    assert window.locator("td[tabindex='0']").count() == 1
    window.locator("td[tabindex='0']").focus()
    assert note.inner_text().startswith("Rank 1 of 4")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        window.keyboard.press(key)
    assert note.inner_text().startswith("Mean rank 2.0 on equation.")
    window.keyboard.press("Escape")
    assert not note.is_visible()
    assert window.locator("td[tabindex='0']").count() == 1

    window.get_by_text("Settings and runs of relu").press("Enter")
    row = window.get_by_role("row", name="equation: waves").filter(visible=True)
    assert "8 of 8 failed" in row.inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_fits_its_window(file, opened, width, scheme):
    """Of a computer by day, of a phone by night, on paper; the table scrolls by itself."""
    window = opened(file, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for button in window.locator(".filters [data-data]").all():
        button.click()
    window.get_by_text("Settings and runs of gelu").click()
    assert window.evaluate("document.documentElement.scrollWidth") <= width

    # The names stay in the window while the table scrolls
    window.evaluate("document.querySelector('.scroll').scrollLeft = 10000")
    place = window.locator("tbody th.first").first.bounding_box()
    assert place["x"] >= 0
    scrolls = window.evaluate("document.querySelector('.scroll').scrollLeft") > 0
    assert scrolls == (width == 390)
    window.pdf()


def test_without_scripts_the_table_is_complete(file, opened):
    window = opened(file, java_script_enabled=False)
    assert labels(window) == ["sine", "gelu", HOSTILE, "relu"]
    data = ["text Bible", "text C sources", "equation", "equation waves"]
    assert heads(window) == ["activation", "mean rank", "text", *data]
    assert not window.locator(".filters").is_visible()
    window.get_by_text("Settings and runs of sine").click()
    assert window.get_by_text("lr 0.01, gain 1").first.is_visible()


def test_the_figure_has_ranks_and_failures_and_its_texts_do_not_overlap(scoreboard):
    """Of many tasks, the names are slanted."""
    many = []
    for standing in scoreboard.standings:
        same = dict.fromkeys(TASKS, standing.tasks["equation"])
        many.append(replace(standing, tasks=same))
    for standings, number in ((scoreboard.standings, 1), (tuple(many), len(TASKS))):
        with mpl.rc_context(style.RC):
            drawn = figure.draw(replace(scoreboard, standings=standings))
        ranks, cells = drawn.axes
        names = ranks.get_yticklabels()
        assert [name.get_text() for name in names] == ["sine", "gelu", HOSTILE, "relu"]
        weights = [name.get_fontweight() for name in names]
        assert weights == ["normal", "normal", "bold", "normal"]
        assert [text.get_text() for text in ranks.texts] == ["1.0", "2.0", "3.0", "4.0"]
        failing = [text.get_text() for text in cells.texts if "×" in text.get_text()]
        assert failing == ["2.0 ×"] * number  # of ReLU
        for texts in misplaced(drawn):
            assert number > 1
            assert set(texts) <= set(TASKS)  # boxes around slanted names overlap, the names do not
