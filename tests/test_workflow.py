"""Files for other programs: the CI workflow, the citation and their schemas, the CI scripts."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
SCHEMAS = Path(__file__).parent / "schemas"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if not path.suffix)


class YAML12(yaml.SafeLoader):
    """Only true and false are booleans, as in YAML 1.2; the key ``on`` and dates are text."""


YAML12.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
YAML12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def load(path: Path):
    return yaml.load(path.read_text(encoding="utf-8"), YAML12)


def validate(document, schema: str) -> None:
    text = (SCHEMAS / schema).read_text(encoding="utf-8")
    jsonschema.Draft7Validator(json.loads(text)).validate(document)


def test_there_are_workflows_and_scripts():
    assert WORKFLOWS
    assert [p.name for p in SCRIPTS] == ["run", "smoke", "workflows"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflow_is_valid(path):
    workflow = load(path)
    validate(workflow, "github-workflow.json")
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflow_calls_what_exists(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    commands = [
        step["run"] for job in load(path)["jobs"].values() for step in job["steps"] if "run" in step
    ]
    for command in commands:
        assert set(re.findall(r"\bmake ([a-z]+)", command)) <= targets
        assert all((ROOT / script).is_file() for script in re.findall(r"\.ci/\w+", command))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_pinned_to_a_commit_with_its_version(path):
    used = re.findall(r"uses: +(.+)$", path.read_text(encoding="utf-8"), re.M)
    assert used
    assert [
        text for text in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", text)
    ] == []


def test_classifiers_are_the_versions_of_python_that_ci_tests():
    matrix = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"][
        "python"
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text)
        for text in project["classifiers"]
    ]
    assert [found[1] for found in named if found] == matrix
    assert project["requires-python"] == f">={matrix[0]}"


def test_only_a_tag_releases_and_only_publishing_may_sign_in():
    workflow = load(ROOT / ".github" / "workflows" / "release.yml")
    assert workflow["on"] == {"push": {"tags": ["v[0-9]+.[0-9]+*"]}}
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert {name: job.get("permissions") for name, job in jobs.items()} == {
        "build": None,
        "attach": {"contents": "write"},
        "publish": {"id-token": "write"},
    }
    assert jobs["attach"]["needs"] == jobs["publish"]["needs"] == "build"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_script_is_executable_and_parses(path):
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", path], check=True)


def test_citation_is_valid_and_agrees_with_the_package():
    citation = load(ROOT / "CITATION.cff")
    validate(citation, "citation-file-format.json")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    assert project["dynamic"] == ["version"]
    assert citation["version"] == settings["tool"]["hatch"]["version"]["fallback-version"]
    assert citation["license"] == project["license"]
    cited = {
        identifier["value"]
        for paper in citation["references"]
        for identifier in paper["identifiers"]
    }
    assert cited == {"arXiv:1606.08415", "arXiv:1511.07289"}


def test_licence_is_the_verbatim_apache_text():
    # The text has 202 lines of its own, an empty one first; its ends are enough to notice a cut or
    # a change.
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert len(text.encode()) == 11358
    assert text.lstrip().startswith(
        "Apache License\n                           Version 2.0, January 2004"
    )
    assert text.rstrip().endswith("limitations under the License.")
