"""Tables and figures for a paper, and how a user's activation stands out in them."""

import json
import re
import shutil

import pytest

from actlab.analysis.comparison import table_of
from actlab.errors import ActlabError
from actlab.reports import figures, style, table_files, tables
from actlab.reports.canvas import mpl
from actlab.reports.latex import escaped
from actlab.reports.pages.study import drawing
from actlab.reports.plots import read
from actlab.reports.terminal import print_table
from drawn_texts import misplaced

MINE = ["./mine.py:My_unit"]


def cells_of(text: str) -> list[list[list[str]]]:
    """The rows of each table, read strictly: balanced braces, no bare characters, equal columns."""
    plain = re.sub(r"\\\\(?=\n)", "", re.sub(r"(?m)^%.*", "", text))
    depth = 0
    for char in re.sub(r"\\[{}]", "", plain):
        depth += (char == "{") - (char == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == plain.count(r"\$") % 2
    assert not re.search(
        r"(?<!\\)[#%_^~<>|\"]|(?<!\\)&(?! )", re.sub(r"\$[<>|]\$|\{table\}", "", plain)
    )
    found = []
    for columns, body in re.findall(
        r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", text, re.S
    ):
        rules = r"\\(top|mid|bottom)rule|\\multicolumn\{\d+\}\{l\}\{.*\} \\\\"
        lines = [line for line in body.splitlines() if not re.fullmatch(rules, line)]
        assert all(line.endswith(r" \\") for line in lines)
        rows = [line.removesuffix(r" \\").split(" & ") for line in lines]
        assert {len(row) for row in rows} == {len(columns)}
        found.append(rows)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(found)
    return found


def test_a_latex_table_has_median_interval_difference_and_p(written):
    text = table_files.to_latex(table_of(written(overrides=["seeds=7"], activations=MINE)))
    assert text.startswith("% \\usepackage{booktabs}\n")
    errors, losses = cells_of(text)
    assert errors[0] == ["activation", "dropout", "median", "difference to relu", "p alone / Holm"]
    assert errors[1] == [
        "gelu\\_tanh",
        "0",
        "2.30 [2.00, 2.60]",
        "$-$2.00 [$-$2.00, $-$2.00]",
        "0.00058 / 0.0023",  # of the probability, for four comparisons
    ]
    assert [row[0] for row in errors if "textbf" in row[0]] == [r"\textbf{My\_unit}"] * 2
    assert losses[0][3] == "published (ours - it)"
    assert "Median over seeds 0--6 [interval]. Difference to relu: mean of pairs" in text
    assert "alone and corrected by Holm within 2 primary and 4 secondary comparisons" in text


def test_text_of_users_is_escaped_in_latex(written):
    def hostile(text: str) -> str:
        text = text.replace(
            "title: A study of units", r"title: '50 % & #1 of \textbf{x}_$y ~ ^ < > | \" {'"
        )
        return text.replace("relu, elu]", "relu, '[elu] & more']")

    text = table_files.to_latex(table_of(written(edit=hostile)))
    tables_found = cells_of(text.replace(r"\& more", "and more"))
    assert tables_found[0][-1][0] == "{}[elu] and more"
    assert (
        r"50 \% \& \#1 of \textbackslash{}textbf\{x\}\_\$y \textasciitilde{} \textasciicircum{} $<$"
        in text
    )


def test_characters_in_latex():
    for text, latex in (
        ("-0.10 [-1e-05, +2.0]", r"$-$0.10 [$-$1e-05, $+$2.0]"),
        ("gelu-2 ± ∞", r"gelu-2 $\pm$ $\infty$"),
        ("0–4, ‘é’ “x”", "0--4, `é' ``x''"),
    ):
        assert escaped(text) == latex


def test_latex_of_other_scripts_says_which_engine_it_needs(written):
    loaded = written(edit={"A study": "α 研究"})
    assert table_files.to_latex(table_of(loaded)).startswith(
        "% XeLaTeX or LuaLaTeX only, because of: α 研 究"
    )


def test_show_prints_latex(cli, written, tmp_path):
    written()
    words = ("study", "show", tmp_path / "units.yaml", "--runs-dir", tmp_path / "runs")
    out = cli(*words, "--latex").succeeded()
    assert len(cells_of(out)) == 2
    assert cli(*words, "--latex", "--csv").code == 2


def test_several_studies_come_in_one_latex_table(cli, written, tmp_path):
    """The primary column of each, at each point of the grid, with what was run in the caption."""
    found = written(overrides=["seeds=7"], activations=MINE)
    table_files.write(table_of(found), found, tmp_path / "runs/units")
    other = written(
        edit={"A study": "A short study"}, overrides=["model.activation=[relu, gelu_tanh]"]
    )
    table_files.write(table_of(other), other, tmp_path / "runs/other")
    file = tmp_path / "runs/other/table.json"
    file.write_text(file.read_text().replace('"study": "units"', '"study": "other"'))
    text = cli("report", "--latex", "--runs-dir", tmp_path / "runs").out
    rows, compared = cells_of(text)
    assert rows[0] == ["", "runs", "median [interval]", "difference [interval]", "p alone / Holm"]
    points = [f"{name}, dropout {rate}" for name in ("other", "units") for rate in ("0", "0.5")]
    assert compared[0] == ["", "better", "geometric mean", *points]
    assert {row[0] for row in compared[1:]} == {r"gelu\_tanh", "elu", r"\textbf{My\_unit}"}
    assert len(rows) == 1 + 2 * 4 + 2 * 2  # with and without dropout
    assert re.findall(r"multicolumn\{5\}\{l\}\{(\w+): (dropout [\d.]+), test error", text) == [
        ("other", "dropout 0"),
        ("other", "dropout 0.5"),
        ("units", "dropout 0"),
        ("units", "dropout 0.5"),
    ]
    mine = next(row for row in rows if "My" in row[0])
    assert mine[:3] == [r"\textbf{My\_unit}", "7", "2.30 [2.00, 2.60]"]
    assert mine[3] == "$-$2.00 [$-$2.00, $-$2.00]"
    (raw,) = {
        c["p"]
        for c in json.loads((tmp_path / "runs/units/table.json").read_text())["rows"][-1][
            "columns"
        ][:1]
    }
    assert mine[4].startswith(f"{raw:.2g} / ")
    assert "caption{relu, gelu\\_tanh, elu, My\\_unit in 2 studies. Median" in text
    assert (
        "caption{Two of 50 \\%. Median"
        in cli(
            *("report", "--latex", "--runs-dir", tmp_path / "runs", "--title", "Two of 50 %")
        ).out
    )
    alone = cli("report", "--title", "Two", "--runs-dir", tmp_path / "runs")
    assert "--title requires --latex" in alone.rejection
    empty = cli("report", "--latex", "--runs-dir", tmp_path / "none")
    assert "--runs-dir: expected a folder of studies with table.json, got" in empty.rejection


def test_a_study_without_columns_is_left_out_of_the_latex_table(cli, written, tmp_path):
    """No finished run recorded a metric of its table."""
    loaded = written(overrides=["seeds=7"])
    table_files.write(table_of(loaded), loaded, tmp_path / "runs/units")
    record = json.loads((tmp_path / "runs/units/table.json").read_text())
    for row in record["rows"]:
        row["columns"] = []
    record["study"] = "empty"
    (tmp_path / "runs/empty").mkdir()
    (tmp_path / "runs/empty/table.json").write_text(json.dumps(record))

    text = cli("report", "--latex", "--runs-dir", tmp_path / "runs").out

    (rows,) = cells_of(text)
    assert len(rows) == 1 + 2 * 3
    assert "Left out without a recorded metric: empty." in text

    shutil.rmtree(tmp_path / "runs/units")
    text = cli("report", "--latex", "--runs-dir", tmp_path / "runs").out
    (rows,) = cells_of(text)
    assert len(rows) == 1


def test_a_figure_for_a_paper_has_its_width_and_true_fonts(cli, written, tmp_path):
    loaded = written(activations=MINE)
    words = ("study", "report", tmp_path / "units.yaml", "--runs-dir", tmp_path / "runs")
    alone = cli(*words, "--font", "serif")
    assert alone.code == 2
    message = "--font requires --paper, because it is the font of paper figures. Add --paper 1"
    assert message in alone.err
    said = cli(*words, "--activation", *MINE, "--paper", 1, "--font", "serif").succeeded()
    serif, wide = loaded.root / "figures" / "curves.pdf", style.Paper(2, "sans")
    assert f"{serif}\n  caption: Lines: median of 2 runs" in said
    (sans,) = style.save(figures.draw(loaded, wide)["curves"], tmp_path / "wide", wide)
    for file, width, font, paper in (
        (serif, 3.25, b"STIXGeneral-Regular", style.Paper(1, "serif")),
        (sans, 6.75, b"DejaVuSans", wide),
    ):
        content = file.read_bytes()
        assert f"/MediaBox [ 0 0 {72 * width:g} ".encode() in content
        assert font in content
        assert b"/FontFile2" in content  # TrueType, embedded
        assert b"/Type3" not in content
        assert b"CreationDate" not in content
        with mpl.rc_context(paper.rc):
            (plot,) = read(loaded)
            drawn = figures.figure_of(loaded, plot, paper)
            assert not misplaced(drawn)
        assert loaded.study.title not in {text.get_text() for text in drawn.texts}


def test_a_users_activation_is_thick_and_on_top(written):
    loaded = written(activations=MINE)
    (plot,) = read(loaded)
    assert plot.users == {"My_unit"}
    lines = figures.figure_of(loaded, plot).axes[1].get_lines()
    mine = max(lines, key=lambda line: line.get_zorder())
    assert mine.get_color() == style._OWN[0]
    assert mine.get_linewidth() > 1.5 * min(line.get_linewidth() for line in lines)
    assert lines[-1] is mine
    legend = {entry["label"]: entry["own"] for entry in drawing(plot)["legend"]}
    assert legend == {"gelu_tanh": False, "relu": False, "elu": False, "My_unit": True}


def test_a_users_activation_is_marked_in_tables(written, capsys):
    loaded = written(activations=[*MINE, "relu"])  # the user asks for relu by name
    assert tables.by_user(table_of(loaded)) == [False, False, True, True, False, False, True, True]
    print_table(table_of(loaded))
    starts = re.findall(r"(?m)^> (\w+) ", capsys.readouterr().out)
    assert set(starts) == {"relu", "My_unit"}
    markdown = table_files.to_markdown(table_of(loaded))
    assert "| **My_unit** |" in markdown
    assert "| gelu_tanh |" in markdown


def test_activations_of_the_user_have_colours_of_their_own():
    found = style.colours(["gelu", "mine", "other", "third", "further"], {"mine", "other", "third"})
    assert len(set(found.values())) == 5
    assert [found["mine"], found["other"]] == [*style._OWN]
    assert found["further"] == style.colours(["gelu", "further"])["further"]
    assert style.colours(["silu"], {"silu"}) == style.colours(["silu"])


def test_more_panels_than_a_column_holds_are_in_pairs(written):
    def four(text: str) -> str:
        first = "      - {title: plain, where: {model.dropout: 0.0}, published: A, ylim: [0, 1]}\n"
        return text.replace(
            first, first + first.replace("plain", "b") + first.replace("plain", "c")
        )

    loaded, paper = written(edit=four), style.Paper(1, "sans")
    with mpl.rc_context(paper.rc):
        (plot,) = read(loaded)
        drawn = figures.figure_of(loaded, plot, paper)
        assert drawn.axes[0].get_subplotspec().get_gridspec().ncols == 2
        assert not misplaced(drawn)
    with pytest.raises(
        ActlabError, match=r"has 12 panels and would be 1\d\.\d inches high, but a page has 9\. Use"
    ):
        figures.figure_of(loaded, type(plot)(plot.name, plot.panels * 3, ""), paper)
