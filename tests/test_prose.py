"""Pages and messages are written in short sentences of plain English."""

import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import actlab
from actlab.cli.commands import COMMANDS, FITS
from prose import (
    PHRASES,
    faults,
    faults_of_messages,
    faults_of_page,
    messages,
    sentences,
    sentences_of_page,
    share_of_long,
)

ROOT = Path(__file__).parents[1]
SOURCE = Path(actlab.__file__).parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        *(ROOT / name / "README.md" for name in ("data", "benchmarks", "examples")),
        *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts),
        *ROOT.glob("results/**/README.md"),
        *(ROOT / "results" / name for name in ("claims.md", "gates.md")),
        *(ROOT / "results/scoreboard" / name for name in ("processors.md", "tuning.md")),
    ]
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_written_in_plain_sentences(page):
    assert faults_of_page(page.read_text(encoding="utf-8")) == []


def test_the_front_page_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    long, total = share_of_long(text)

    assert total > 50
    assert long <= 0.02 * total
    assert len(text.splitlines()) <= 120


def commands_of(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """Yield a parser, and the parsers of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for sub in action.choices.values():
                yield from commands_of(sub)


def help_texts(parser: ArgumentParser) -> list[tuple[str, str]]:
    """Return the description of a command and the help of its options, also of its commands."""
    texts = []
    for command in commands_of(parser):
        texts.append((command.prog, command.description or ""))
        for action in command._actions:
            if not isinstance(action, _SubParsersAction):
                name = (action.option_strings or [str(action.metavar)])[-1]
                texts.append((f"{command.prog} {name}", action.help or ""))
    return texts


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in FITS])
def test_help_is_written_in_plain_sentences(command):
    texts = help_texts(import_module(COMMANDS[command]).parser())

    assert [name for name, text in texts if not text] == []
    assert [
        (name, fault)
        for name, text in texts
        for sentence in sentences(text)
        for fault in faults(sentence, PHRASES)
    ] == []


def test_each_description_of_a_command_is_a_sentence():
    parsers = [import_module(COMMANDS[name]).parser() for name in COMMANDS.keys() - {*FITS}]
    described = {sub.prog: sub.description for parser in parsers for sub in commands_of(parser)}

    assert {"actlab check", "actlab study run", "actlab data fetch"} <= described.keys()
    wrong = [name for name, text in described.items() if not re.match(r"[A-Z].+\.$", text or "")]
    assert wrong == []


def test_pages_of_every_kind_are_read():
    names = {name_of(page) for page in PAGES}
    assert {"README.md", "docs/faq.md", "results/README.md", "results/gates.md"} <= names
    assert len(names) > 60


def test_only_prose_is_read():
    page = (
        "# A title\n\nFirst, see [this page](a.md#that-of) of `those of`. It holds (e.g. here),\n"
        "in Fig. 2.\n\n- One item\n- Another item, on\n  two lines\n\n"
        "````text\n```\nthat of\n```\n````\n| a table | is no text |\n> is no text\n"
        ":::{note}\n:name: that-of\nAn admonition.\n:::\n![those of](a.png)\n<!-- but\nfor -->\n"
    )
    assert [sentence for _, sentence in sentences_of_page(page)] == [
        "A title",
        "First, see this page of X.",
        "It holds (e․g․ here), in Fig․ 2.",
        "One item",
        "Another item, on two lines",
        "An admonition.",
    ]
    assert share_of_long(page) == (0, 6)


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("A label that is no class.", "'is no'"),
        ("It is no longer here, and there is no verdict.", ""),
        ("All but for one.", "'but for'"),
        ("The error is that of GELU.", "'that of'"),
        ("An error of .82 or 0.82.", "'.8'"),
        ("An error of 0.82 in v1.2.", ""),
        ("What is not there is left out.", "'What is not there is left out.'"),
        ("What is not there?", ""),
        ("Where it fails, stop.", "'Where it fails, stop.'"),
        ("The intervals are of seeds.", "'are of'"),
        ("The page speaks of seeds.", "'speaks'"),
        ("An ellipsis stands for any text.", ""),
        ("Whoever reads.", "'Whoever'"),
        ("word " * 35, ""),
        ("word " * 36, "36 words"),
    ],
)
def test_which_phrases_are_found(sentence, fault):
    found = faults(sentence, PHRASES)
    assert [text.startswith(fault) for text in found] == [True] * bool(fault)


def test_messages_are_the_strings_of_errors_that_are_raised(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "def f(x):\n"
        '    text = f"a {x!r} "\n'
        '    text += "b"\n'
        "    if x:\n"
        '        raise ValueError(text) from KeyError("c")\n'
        '    raise ValueError("d" + f"{x}: " "that of", wrap("e"))\n',
        encoding="utf-8",
    )
    assert {text for _, text in messages(file)} == {"a X ", "b", "dX: that of", "e"}
    assert [(fault.line, fault.sentence) for fault in faults_of_messages(file)] == [
        (6, "dX: that of")
    ]


def test_messages_are_written_in_plain_sentences():
    files = sorted(SOURCE.rglob("*.py"))
    assert sum(len(list(messages(file))) for file in files) > 400

    found = []
    for file in files:
        for fault in faults_of_messages(file):
            found.append((file.relative_to(SOURCE).as_posix(), *fault))
    assert found == []
