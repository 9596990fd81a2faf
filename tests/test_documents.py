"""What the documents show is true: links lead somewhere, examples run, tables are complete."""

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from actlab.cli.commands import COMMANDS, FITS
from page_blocks import Block, blocks_of, outputs_of
from printed_blocks import allows, refreshed

ROOT = Path(__file__).parents[1]
PAGES = [
    page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.relative_to(ROOT).parts
]
DOCUMENTS = sorted(
    [
        *(*ROOT.glob("*.md"), *ROOT.glob("data/*.md"), *ROOT.glob("benchmarks/*.md")),
        *(*ROOT.glob("results/**/*.md"), *PAGES),
    ]
)


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def commands_in(block: Block) -> list[list[str]]:
    """The words after ``actlab`` of each command of a block."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("actlab ")]


def commands_of(document: Path) -> Iterator[list[str]]:
    """The words after ``actlab`` of each command of a document that is run."""
    for block in blocks_of(document):
        if block.language == "bash":
            yield from commands_in(block)


EXAMPLES = [
    document
    for document in DOCUMENTS
    if any(block.language in ("python", "pycon") for block in blocks_of(document))
    or any(commands_of(document))
]


def test_links_lead_somewhere():
    missing = []
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
        targets = re.findall(r"\]\(([^)\s]+)\)", text)
        local = [target.partition("#")[0] for target in targets if "://" not in target]
        missing += [(name_of(document), to) for to in local if not (document.parent / to).exists()]
    assert missing == []


def test_configs_and_studies_named_in_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    configs = re.findall(r"configs/\w+\.yaml", text)
    studies = re.findall(r"actlab study \w+ (\w+)(?![\w.])", text)
    missing = [name for name in configs if not (ROOT / name).exists()]
    missing += [
        name for name in studies if not (ROOT / "configs" / "studies" / f"{name}.yaml").exists()
    ]
    assert missing == []


def test_the_site_has_all_results():
    told = {path.parent.name for path in ROOT.glob("results/*/README.md")}
    pages = {page.stem: page.read_text(encoding="utf-8") for page in ROOT.glob("docs/results/*.md")}
    assert told == pages.keys()
    assert all(f"../../results/{name}/README.md" in text for name, text in pages.items())


def test_there_are_documents_and_examples():
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= {
        document.name for document in DOCUMENTS
    }
    names = set(map(name_of, EXAMPLES))
    assert {"docs/guide/compare.md", "docs/concepts/reproducibility.md"} <= names
    assert sum(len(list(commands_of(document))) for document in EXAMPLES) > 10


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory whose files can be imported, also by child processes."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


# Pages whose training takes seconds, of kinds that other pages run; by default their commands are
# only read.
LATER = ("compare", "logging", "studies", "tune")
# test_packaging runs two
LONG = {f"docs/guide/{name}.md" for name in LATER} | {
    "README.md",
    "docs/tutorial.md",
}


def is_quick(words):
    """Whether a command writes or plans a study, which trains nothing."""
    return words[:2] in (["study", "new"], ["study", "plan"])


def is_training(block):
    """Whether a block has commands that are not quick, which a long page only reads."""
    return block.language in ("bash", "sh") and not all(map(is_quick, commands_in(block)))


def carry_out(cli, words, read_only):
    """Run a command, with three batches an epoch; return its output. Only read a long one.

    Then its study is planned, and its config resolved. Quick commands are always run.
    """
    if words[0] in FITS and "--print_config" not in words:
        words = [*words, "--trainer.limit_train_batches", "3"]
    if not read_only or is_quick(words):
        return cli(*words).succeeded()
    if words[0] in FITS:
        carry_out(cli, [*words, "--print_config"], False)
    else:
        import_module(COMMANDS[words[0]]).parser().parse_args(words[1:])
        if words[:2] == ["study", "run"]:
            options = [
                word
                for word in words[2:]
                if word not in ("--html", "--report", "--logger", "wandb")
            ]
            carry_out(cli, ["study", "plan", *options], False)
    return ""


@pytest.mark.parametrize(
    ("document", "read_only"),
    [
        *((document, name_of(document) in LONG) for document in EXAMPLES),
        *(
            pytest.param(ROOT / f"docs/guide/{name}.md", False, marks=pytest.mark.slow)
            for name in LATER
        ),
    ],
    ids=lambda value: name_of(value) if isinstance(value, Path) else "read" if value else "run",
)
def test_examples_run(document, read_only, folder, cli, undrawn, shows):
    """Files are written, Python and commands are run in one folder, in the order of the document.

    What they print is what the document shows. What takes most time is left out: pictures of
    figures, and outside long pages all but two epochs where a file has ten or more.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    shown = {printed_by: block for printed_by, block in outputs_of(document) if printed_by}
    for block in blocks_of(document):
        printed = io.StringIO()
        if block.package:
            continue
        if block.file:
            text = block.text
            if name_of(document) not in LONG:
                text = re.sub(r"max_epochs: \d\d", "max_epochs: 2", text)
            (folder / block.file).write_text(text, encoding="utf-8")
        elif block.language == "python":
            with contextlib.redirect_stdout(printed):
                # A warning is an error in all tests
                exec(compile(block.text, "example", "exec"), names)
        elif block.language == "pycon":
            example = doctest.DocTestParser().get_doctest(
                block.text, names, name_of(document), None, 0
            )
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
                example, clear_globs=False
            )
            names.update(example.globs)
            assert result.failed == 0
        elif block.language == "bash" or (
            block.language == "sh" and block in shown and not read_only
        ):
            for words in commands_in(block):
                printed.write(carry_out(cli, words, read_only))
        if block in shown and not (read_only and is_training(block)):
            shows(document, shown[block].text, printed.getvalue())


# Pages with text that no command above it prints, and what compares it.
QUOTED = {
    # computes each sentence; the first one, of kept results, is in test_kept_sentences.py
    "docs/concepts/verdicts.md": "reports/test_verdict_page.py",
    "docs/guide/scoreboard.md": "test_kept_sentences.py",
    "docs/tutorial.md": "test_packaging.py",  # trains its 75 runs
    "examples/README.md": "test_examples.py",  # runs the scripts
}


def test_each_printed_block_is_compared():
    trained = {name_of(page) for page in EXAMPLES} - LONG | {
        f"docs/guide/{name}.md" for name in LATER
    }
    elsewhere: set[str] = set()
    here: set[str] = set()
    for page in [*DOCUMENTS, ROOT / "examples/README.md"]:
        name = name_of(page)
        for before, _ in outputs_of(page):
            (here if before and name in trained else elsewhere).add(name)
    assert elsewhere == set(QUOTED)
    assert all((Path(__file__).parent / test).is_file() for test in QUOTED.values())
    assert {"docs/guide/lightning.md", "docs/guide/python.md", "docs/guide/tune.md"} <= here


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a  0.82 [−0.1, 3.0]\n", "a 120 [0.5, 1e-3]\n", True),
        ("p < 0.05. So far 1.5.\n", "p < 0.04. So far 2.\n", True),
        ("24 runs, 0.5 s\n", "25 runs, 0.5 s\n", False),
        ("first\n…\nlast\n", "first\nsecond\nlast\n", True),
        ("first\n…\n", "first\n", True),
        ("first\n…\nlast\n", "first\nlast, and more\n", False),
        ("elu: better, 0.1 points lower (3 pairs).\n", "elu: worse, 2 points higher.\n", True),
        (
            "elu: better, 0.1\npoints (3 pairs). …\nend\n",
            "elu: worse, 2 points. It is late.\nend\n",
            True,
        ),
        ("elu: better, 0.1 points lower (3 pairs).\n", "relu: worse, 2 points higher.\n", False),
        ("  elu  better  −0.1 [1.0, 2.0]  p = 1\n", "  elu  worse  2 points\n", True),
        ("> elu  better  −0.1 points\nend\n", "  elu  better  −0.1 points\nend\n", False),
        ("  elu  better  −0.1 points\nend\n", "  relu  better  −0.1 points\nend\n", False),
        ("  elu  better\n> a  worse\nend\n", "> a  better\n  elu  worse\nend\n", True),
        (
            "a b\n──\nelu  0.1\n> mine  0.2\n\nend\n",
            "a b\n──\n> mine  2.1\nelu  2.2\n\nend\n",
            True,
        ),
        ("a b\n──\nelu  0.1\nrelu  0.2\n", "a b\n──\nelu  2.1\nsoi  2.2\n", False),
        ("lr0.001-seed0\n", "lr0.002-seed0\n", False),
        ("dict_keys(['test/loss'])\n", "dict_keys(['test/loss', 'test/error'])\n", False),
    ],
)
def test_a_shown_block_allows_what_depends_on_the_processor_alone(shown, printed, expected):
    assert allows(shown, printed) is expected


def test_a_block_is_written_again_from_what_is_printed():
    shown = (
        "demo: 24 runs, in runs/demo\n…\nelu: better, 0.1 points. So far 2. …\n\n"
        "24 of 24 runs finished.\n…\n"
    )
    lines = [
        "demo: 12 runs, in runs/demo",
        "loading …",
        "elu: worse, 0.3 points. So far 1. It is late.",
    ]
    lines += ["", "12 of 12 runs finished.", "Medians over seeds."]
    new = (
        "demo: 12 runs, in runs/demo\n…\nelu: worse, 0.3 points. So far 1. …\n\n"
        "12 of 12 runs finished.\n…\n"
    )
    assert refreshed(shown, "\n".join(lines)) == new
    assert refreshed("old\n", "new\nlines\n") == "new\nlines\n"


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            "    num_outputs = 1\n",
            "PriceTable has no num_outputs. Set model.num_outputs in the config",
        ),
        (
            "self.input_shape = ",
            "PriceTable has no input_shape. Set model.input_shape in the config",
        ),
        (
            ".unsqueeze(1)",
            "the targets of a batch have shape (16,), but the network's output has (16, 1)",
        ),
    ],
)
def test_the_regression_on_a_users_table_fails_before_training_where_something_is_missing(
    missing, message, folder, cli
):
    blocks = [*blocks_of(ROOT / "docs/guide/own_network.md")]
    for block in blocks:
        if block.file:
            replaced = "shape = " if missing.startswith("self") else ""
            (folder / block.file).write_text(
                block.text.replace(missing, replaced), encoding="utf-8"
            )
    assert missing in "".join(block.text for block in blocks)
    (table,) = (
        block.text
        for block in blocks
        if "prices.csv" in block.text and block.text.startswith("import")
    )
    exec(compile(table, "example", "exec"), {})
    outcome = cli("fit", "-c", "price_task.yaml")
    assert message in outcome.rejection
    assert not [*folder.glob("runs/**/*.ckpt")]


OPTIONAL = [
    pytest.param(block, id=f"{name_of(document)}-{block.package}")
    for document in EXAMPLES
    for block in blocks_of(document)
    if block.package
]


@pytest.mark.parametrize("block", OPTIONAL)
def test_example_of_another_package_runs(block):
    pytest.importorskip(block.package)
    exec(compile(block.text, "example", "exec"), {})


@pytest.fixture
def generated(monkeypatch) -> ModuleType:
    """The module that writes the tables of the reference."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module("generated")


def test_each_key_of_a_study_file_has_a_meaning(generated):
    found = generated.parts()
    assert {"study", "select", "probes", "table", "figures", "panels", "published"} <= set(found)
    assert [
        (part, key.name) for part, keys in found.items() for key in keys if not key.meaning
    ] == []
    assert generated.SEE in "".join(key.meaning for key in found["table"] if key.name == "at")


def test_the_reference_has_each_command(generated):
    text = generated.commands()
    assert [name for name in COMMANDS.keys() - {*FITS} if f"## actlab {name}\n" not in text] == []
    for words in (
        "## actlab study run",
        "`--max-stack R`",
        "## actlab data fetch",
        "`--plot PICTURE`",
    ):
        assert words in text


def test_the_reference_has_the_public_api():
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for package in ("activations", "networks", "tasks", "datamodules", "probes", "callbacks"):
        assert f".. automodule:: actlab.{package}\n" in text
