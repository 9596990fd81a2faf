"""Pages for browsers: their content; text stays text, and a browser shows and toggles it."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from actlab.analysis import comparison, verdict
from actlab.reports import output, style, table_files
from actlab.reports.pages import study
from actlab.reports.pages.study import heat_map
from actlab.reports.plots import read
from actlab.scoreboard import studies_page, tables
from actlab.studies import probe_files
from html_pages import Page
from tables_by_hand import cell, leave, table

HOSTILE = "<script>alert(1)</script>"


def hostile(text: str) -> str:
    """The study with markup wherever a person can write."""
    text = text.replace("title: A study of units", "title: 'A </script><b>study</b> & more'")
    text = text.replace("relu, elu]", f'relu, "{HOSTILE}"]').replace(
        "title: plain", "title: '</script><b>plain'"
    )
    return text.replace('"A note."', '"</script><img src=x onerror=alert(2)>"').replace(
        "source: a paper", "source: '<!-- <script> a paper'"
    )


def page_of(loaded: Any) -> Path:
    table_files.write(comparison.table_of(loaded), loaded, loaded.root)
    return study.write([loaded], comparison.table_of(loaded), loaded.root)


def test_the_page_says_what_the_table_says(written):
    loaded = written(overrides=["seeds=7"])
    page = Page(page_of(loaded))
    assert page.text("h1") == page.text("title") == "A study of units"
    text = page.text()
    for words in (
        "A note.",
        "84 of 84",
        "2.30",
        "[2.00, 2.60]",
        "0.350",
        "+0.0800",
        "0.00058",
        "0.0023",
    ):
        assert words in text
    assert (
        "Chosen per row: lr with the best median over seeds of the best val/loss reached." in text
    )
    assert "−2.00 [−2.00, −2.00] / −2.00" in text
    assert all(version in text for version in ("torch", "pytorch-lightning", "actlab"))
    assert "model.activation:" in page.text("pre")
    links = {attributes.get("href") for tag, attributes in page.elements if tag == "a"}
    assert {f"{run.id}/" for run in loaded.runs} <= links
    assert {"table.md", "table.json", "values.csv"} <= links
    assert "curves.csv" not in links  # nobody wrote it


def test_the_page_asks_for_nothing(written):
    page = Page(page_of(written()))
    loaded = [
        a.get(key)
        for tag, a in page.elements
        if tag not in ("a", "html")
        for key in ("src", "href")
    ]
    assert set(loaded) == {None, "data:,"}
    assert all("url(" not in text and "@import" not in text for text in page.texts["style"])
    policy = next(
        a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")


def test_the_page_draws_what_the_figures_draw(written):
    loaded = written()
    (figure,), (plot,) = Page(page_of(loaded)).figures, read(loaded)
    assert [panel["title"] for panel in figure["panels"]] == ["plain", "dropped"]
    assert figure["caption"] == plot.caption
    assert [panel["ylim"] for panel in figure["panels"]] == [
        [0, 1],
        [0, pytest.approx(1.08 * 20.6, rel=0.2)],
    ]
    drawn = {(line["label"], line["metric"]): line for line in figure["panels"][0]["lines"]}
    for line in plot.panels[0].lines:
        values = drawn[line.label, line.metric]
        for key in ("median", "low", "high"):
            assert values[key] == pytest.approx(getattr(line.curve.band, key).tolist(), rel=1e-5)
    assert drawn["relu", "val/loss"]["published"] == [[1, 3], [0.9, 0.5]]
    error = figure["panels"][1]["lines"][1]
    # percent, as it is drawn
    assert (error["label"], error["median"][-1]) == (
        "relu",
        pytest.approx(4.05),
    )
    assert [entry["light"] for entry in figure["legend"]] == list(
        style.colours(["gelu_tanh", "relu", "elu"]).values()
    )
    assert figure["kinds"] == ["held out", "training", "published", "bands"]


def test_diverged_runs_are_gaps_and_are_counted(written):
    page = Page(page_of(written(diverge=lambda r: r.point["model.activation"] == "elu")))
    lines = page.figures[0]["panels"][1]["lines"]
    last = {line["label"]: line["median"][-1] for line in lines}
    assert last["elu"] is not None  # recorded before it diverged
    assert "2, 2 diverged" in page.text("td")
    assert "8 of which diverged" in page.text()


def test_text_of_users_stays_text(written):
    clean, page = Page(page_of(written())), Page(page_of(written(edit=hostile)))
    for tag in ("script", "b", "img", "style"):
        assert page.count(tag) == clean.count(tag)
    assert page.text("h1") == "A </script><b>study</b> & more"
    assert HOSTILE in page.text("button")
    assert HOSTILE in page.text("th")
    assert HOSTILE in page.text("pre")
    assert "</script><img src=x onerror=alert(2)>" in page.text("p")
    (figure,) = page.figures
    assert figure["legend"][2]["label"] == HOSTILE
    assert figure["panels"][0]["title"] == "</script><b>plain"


def test_the_map_of_settings_has_every_one_and_frames_the_chosen(written):
    loaded = written(
        skip=lambda r: r.point["model.activation"] == "elu" and r.point["model.lr"] < 1e-3
    )
    heat = heat_map(loaded)
    assert (heat["value"], heat["tuned"], heat["settings"]) == (
        "best val/loss",
        "lr",
        ["0.001", "0.0001"],
    )
    relu, elu = (
        next(r for r in heat["rows"] if r["label"] == f"{unit}, 0") for unit in ("relu", "elu")
    )
    assert [(c["text"], c["shade"], c["chosen"]) for c in relu["cells"]] == [
        ("0.405", 100, True),
        ("0.505", 0, False),
    ]
    assert [(c["text"], c["n"]) for c in elu["cells"]] == [("0.305", 2), ("-", 0)]
    one = written(edit={"[1.0e-3, 1.0e-4]": "[1.0e-3]"})
    assert heat_map(one) is None


def test_a_study_that_compares_nothing_has_a_page_and_no_verdict_in_the_list(written):
    tuned_alone = {
        "tune: [model.lr]": "tune: [model.activation, model.dropout, model.lr]",
        "      - {title: dropped, where: {model.dropout: 0.5}": "      - {title: dropped",
        ", where: {model.dropout: 0.0}": "",
        "where: {model.activation: relu, ": "where: {",
    }
    loaded = written(edit=tuned_alone)
    page = Page(page_of(loaded))
    assert page.text("caption").startswith("Median over seeds of the best val/loss reached.")
    assert "No verdict: the study has no reference" in index_of(loaded.root.parent).text("li")


def test_the_config_keeps_the_order_of_the_disk_to_itself(written):
    loaded = written(activations=["./mine.py:relu"])
    text = study.config(loaded.study)
    assert str(Path.cwd()) not in text
    assert "published.csv" in text
    assert str(loaded.root.parent.parent) not in text


def table_of(name: str, *verdicts: tuple[str, str], **given: Any) -> dict[str, Any]:
    """A table as `study run` leaves it, with verdicts by their family."""
    point, columns = {"model.activation": "relu"}, [cell({"0": 0.1}, 0.1)]
    rows = [{"point": point, "chosen": {}, "edges": [], "columns": columns}]
    of_each = {"name": "relu", "column": "test/error@last", "outcome": "worse"}
    said = [{**of_each, "family": family, "text": text} for family, text in verdicts]
    return table(name, "model.activation", rows, title=f"{name} {HOSTILE}", verdicts=said, **given)


def index_of(runs: Path) -> Page:
    return Page(studies_page.write(runs, tables.read(runs)))


def test_the_index_lists_studies_with_verdict_figure_and_link(cli, tmp_path):
    primary = "relu: worse, by 1.00 points."
    both = ("primary", primary), ("secondary", "relu: another.")
    leave(tmp_path, table_of("a", *both, diverged=1, planned=12))
    leave(tmp_path, table_of("b", ("secondary", HOSTILE), samples=True))
    leave(tmp_path, table_of("c-smoke"))
    (tmp_path / "a" / study.NAME).write_text("a page")
    figures = tmp_path / "a/figures"
    figures.mkdir()
    for name in ("curves", "noise"):
        (figures / f"{name}.svg").write_text(f"<svg>{name}</svg>")

    out = cli("report", "--runs-dir", tmp_path).succeeded()
    file = tmp_path / study.INDEX
    assert out.split() == [str(file)]
    page = Page(file)
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links == ["a/report.html"]
    pictures = [str(attributes["src"]) for tag, attributes in page.elements if tag == "img"]
    assert [base64.b64decode(picture.partition("base64,")[2]) for picture in pictures] == [
        b"<svg>curves</svg>"
    ]
    assert page.text("li") == f"{primary} {HOSTILE} {verdict.SMOKE}"
    for words in (
        "10 of 12 runs, 1 diverged, 3 seeds",
        "9 of 9 runs, 3 seeds, on samples; for its own page: actlab study report b --html",
    ):
        assert words in page.text("p")
    assert page.count("script") == 0


@pytest.mark.usefixtures("undrawn")
def test_figures_and_pages_of_an_earlier_time_are_not_left_beside_a_new_table(written):
    loaded = written()
    output.write([loaded], comparison.table_of(loaded), loaded.root, html=True)
    old = {
        path: path.read_bytes()
        for path in loaded.root.rglob("*.*")
        if path.suffix in {".html", ".csv", ".md"}
    }
    more = written(overrides=["seeds=3"])
    output.keep([more], comparison.table_of(more), more.root)
    assert all(path.read_bytes() != content for path, content in old.items())
    assert "36" in Page(more.root / study.NAME).text()


@pytest.mark.usefixtures("undrawn")
def test_figures_are_drawn_again_after_a_probe_was_evaluated(written):
    """What they show may be in no table."""

    asked = "probes: [{name: noise, class_path: actlab.probes.InputNoise}]\n"
    loaded = written(edit={"figures:\n": f"{asked}figures:\n"})
    output.write([loaded], comparison.table_of(loaded), loaded.root)
    curves = loaded.root / "curves.csv"
    curves.write_text("old")
    output.keep([loaded], comparison.table_of(loaded), loaded.root)
    assert curves.read_text() == "old"
    probe = probe_files.file_of(loaded.root / loaded.runs[0].id, "noise", ["asked"])
    probe_files.write(probe, [])
    os.utime(probe, (1e10, 1e10))
    output.keep([loaded], comparison.table_of(loaded), loaded.root)
    assert curves.read_text() != "old"


def test_the_index_reads_what_a_report_left(written):
    loaded = written(overrides=["seeds=7"])
    page_of(loaded)
    page = index_of(loaded.root.parent)
    first = next(said for said in comparison.table_of(loaded).verdicts if said.family == "primary")
    assert first.text in page.text("li")
    assert "84 of 84 runs, 7 seeds" in page.text("p")


def test_an_index_without_studies_or_of_a_damaged_one_says_what_to_do(cli, tmp_path):
    empty = cli("report", "--runs-dir", tmp_path)
    assert empty.code == 2
    assert "actlab study run demo" in empty.err
    (tmp_path / "a").mkdir()
    for text in ("{", "[]", '{"study": "a"}'):
        (tmp_path / "a" / "table.json").write_text(text)
        damaged = cli("report", "--runs-dir", tmp_path)
        assert (damaged.code, damaged.err.count("\n")) == (2, 1)
        assert "is damaged" in damaged.err
        assert "Delete it, and let `actlab study report` write it again." in damaged.err


def test_a_browser_reads_values_and_hides_lines(written, opened):
    page = opened(page_of(written()), viewport={"width": 1280, "height": 900})
    plot, reading = page.locator(".plot").first, page.locator(".reading").first
    plot.focus()
    page.keyboard.press("End")
    assert reading.inner_text().split()[:2] == ["epoch", "4"]
    rows = {tuple(row.split()) for row in reading.locator("tbody tr").all_inner_texts()}
    # Nothing is published of relu at 4: its curve ends at 3.
    assert ("relu", "val/loss", "0.405", "[0.400,", "0.410]", "–") in rows
    page.keyboard.press("ArrowLeft")
    assert "0.905 [0.900, 0.910] 0.500" in " ".join(reading.inner_text().split())
    before = page.locator("canvas").first.screenshot()
    relu = page.get_by_role("button", name="relu")
    relu.click()
    assert relu.get_attribute("aria-pressed") == "false"
    assert page.locator("canvas").first.screenshot() != before
    plot.hover(position={"x": 300, "y": 100})
    assert "relu" not in reading.inner_text()
    assert "gelu_tanh" in reading.inner_text()
    relu.focus()
    page.keyboard.press("Space")
    assert relu.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="training").press("Enter")
    plot.hover(position={"x": 310, "y": 100})
    assert "train/loss" not in reading.inner_text()
    page.keyboard.press("Escape")


def test_a_page_fits_its_window(written, opened):
    """Of a computer by day, and of a phone by night."""
    loaded = written(edit=hostile, overrides=["seeds=6"])
    for file in (
        page_of(loaded),
        studies_page.write(loaded.root.parent, tables.read(loaded.root.parent)),
    ):
        page = opened(file)
        for width, scheme in ((1280, "light"), (390, "dark")):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            page.reload()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        page.pdf()
