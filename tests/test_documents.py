"""What the documents show is true: links lead somewhere, Python examples run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("data/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("results/**/*.md")]
)
EXAMPLES = [
    pytest.param(example, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, example in enumerate(
        re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.S)
    )
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_configs_and_studies_named_in_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    configs = re.findall(r"configs/\w+\.yaml", text)
    studies = re.findall(r"actlab study \w+ (\w+)", text)
    assert configs
    assert studies
    missing = [name for name in configs if not (ROOT / name).exists()]
    missing += [name for name in studies if not (ROOT / "configs" / "studies" / f"{name}.yaml").exists()]
    assert missing == []


def test_the_site_has_all_results():
    told = {path.parent.name for path in ROOT.glob("results/*/README.md")}
    included = re.findall(
        r"\.\./results/(\w+)/README\.md", (ROOT / "docs/results.md").read_text(encoding="utf-8")
    )
    assert told == set(included)


def test_there_are_documents_and_examples():
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= {p.name for p in DOCUMENTS}
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_python_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "example", "exec"), {"__name__": "__main__"})  # a warning is an error in all tests
