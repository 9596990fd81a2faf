"""What the documents show is true: links lead somewhere, examples run, generated tables are complete."""

import doctest
import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from actlab.checks.properties import ROWS
from actlab.cli.commands import COMMANDS, FITS
from page_blocks import blocks_of

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.relative_to(ROOT).parts]
DOCUMENTS = sorted(
    [
        *(*ROOT.glob("*.md"), *ROOT.glob("data/*.md"), *ROOT.glob("benchmarks/*.md")),
        *(*ROOT.glob("results/**/*.md"), *PAGES),
    ]
)


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def commands_of(document: Path) -> Iterator[list[str]]:
    """The words after ``actlab`` of each command of a document that is run."""
    for block in blocks_of(document):
        for line in block.text.splitlines() if block.language == "bash" else ():
            if line.startswith("actlab "):
                yield shlex.split(line, comments=True)[1:]


EXAMPLES = [
    document
    for document in DOCUMENTS
    if any(block.language in ("python", "pycon") for block in blocks_of(document)) or any(commands_of(document))
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
    missing += [name for name in studies if not (ROOT / "configs" / "studies" / f"{name}.yaml").exists()]
    assert missing == []


def test_the_site_has_all_results():
    told = {path.parent.name for path in ROOT.glob("results/*/README.md")}
    pages = {page.stem: page.read_text(encoding="utf-8") for page in ROOT.glob("docs/results/*.md")}
    assert told == pages.keys()
    assert all(f"../../results/{name}/README.md" in text for name, text in pages.items())


def test_there_are_documents_and_examples():
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= {document.name for document in DOCUMENTS}
    assert {"docs/guide/compare.md", "docs/concepts/streams.md"} <= set(map(name_of, EXAMPLES))
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


# Pages whose training takes seconds, of kinds that other pages run; by default their commands are only read.
LATER = ("compare", "logging", "studies", "tune")
LONG = {f"docs/guide/{name}.md" for name in LATER} | {"README.md", "docs/index.md"}  # test_packaging runs two


def carry_out(cli, words, read_only):
    """Run a command, with three batches an epoch; a long one is only read if asked for.

    Then its study is planned, and its config resolved.
    """
    if words[0] in FITS and "--print_config" not in words:
        words = [*words, "--trainer.limit_train_batches", "3"]
    if not read_only:
        outcome = cli(*words)
        assert outcome.code == 0, f"{words}\n{outcome.err}"
    elif words[0] in FITS:
        carry_out(cli, [*words, "--print_config"], False)
    else:
        import_module(COMMANDS[words[0]]).parser().parse_args(words[1:])
        if words[:2] == ["study", "run"]:
            options = [word for word in words[2:] if word not in ("--html", "--report", "--logger", "wandb")]
            carry_out(cli, ["study", "plan", *options], False)


@pytest.mark.parametrize(
    ("document", "read_only"),
    [
        *((document, name_of(document) in LONG) for document in EXAMPLES),
        *(pytest.param(ROOT / f"docs/guide/{name}.md", False, marks=pytest.mark.slow) for name in LATER),
    ],
    ids=lambda value: name_of(value) if isinstance(value, Path) else "read" if value else "run",
)
def test_examples_run(document, read_only, folder, cli, undrawn, monkeypatch):
    """Files are written, Python and commands are run in one folder, in the order of the document.

    Without what takes most time: pictures of figures, and torch.compile in the table of ``actlab check``.
    """
    monkeypatch.delitem(ROWS, "torch.compile")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(document):
        if block.package:
            continue
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, "example", "exec"), names)  # a warning is an error in all tests
        elif block.language == "pycon":
            example = doctest.DocTestParser().get_doctest(block.text, names, name_of(document), None, 0)
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, clear_globs=False)
            names.update(example.globs)
            assert result.failed == 0
        elif block.language == "bash":
            for line in block.text.splitlines():
                if line.startswith("actlab "):
                    carry_out(cli, shlex.split(line, comments=True)[1:], read_only)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("    num_outputs = 1\n", "PriceTable has no num_outputs: give model.num_outputs in the config"),
        ("self.input_shape = ", "PriceTable has no input_shape: give model.input_shape in the config"),
        (".unsqueeze(1)", "the targets of a batch have shape (16,), but the network's output has (16, 1)"),
    ],
)
def test_the_regression_on_a_users_table_fails_before_training_where_something_is_missing(
    missing, message, folder, cli
):
    blocks = [*blocks_of(ROOT / "docs/guide/own_network.md")]
    for block in blocks:
        if block.file:
            replaced = "shape = " if missing.startswith("self") else ""
            (folder / block.file).write_text(block.text.replace(missing, replaced), encoding="utf-8")
    assert missing in "".join(block.text for block in blocks)
    (table,) = (
        block.text for block in blocks if "prices.csv" in block.text and block.text.startswith("import")
    )
    exec(compile(table, "example", "exec"), {})
    outcome = cli("fit", "-c", "price_task.yaml")
    assert (outcome.code, message in outcome.err.splitlines()[-1]) == (2, True), outcome.err
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
    assert [(part, key.name) for part, keys in found.items() for key in keys if not key.meaning] == []
    assert generated.SEE in "".join(key.meaning for key in found["table"] if key.name == "at")


def test_the_reference_has_each_command(generated):
    text = generated.commands()
    assert [name for name in COMMANDS.keys() - {*FITS} if f"## actlab {name}\n" not in text] == []
    for words in ("## actlab study run", "`--max-stack R`", "## actlab data check", "`--plot PICTURE`"):
        assert words in text


def test_the_reference_has_the_public_api():
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for package in ("activations", "networks", "tasks", "datamodules", "probes", "callbacks"):
        assert f".. automodule:: actlab.{package}\n" in text
