"""Files that other programs read: the CI workflow and the citation against their schemas, the CI scripts."""

import json
import os
import re
import shutil
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
    """Only true and false are booleans, as in YAML 1.2: a workflow's key ``on`` is text, a date as well."""


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


def test_schema_refuses_a_wrong_workflow():
    workflow = load(WORKFLOWS[0])
    workflow["jobs"]["lint"].pop("runs-on")
    with pytest.raises(jsonschema.ValidationError):
        validate(workflow, "github-workflow.json")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_no_job_installs_again_what_setup_installs(path):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    installed = {"dev", *re.findall(r"\w+", re.findall(r"actlab\[(.*?)\]", str(extras["dev"]))[0])}
    for job in load(path)["jobs"].values():
        commands = [step.get("run", "") for step in job["steps"]]
        again = [set(re.findall(r"\w+", found)) for found in re.findall(r"\.\[(.*?)\]", "\n".join(commands))]
        assert "make setup" not in commands or not set().union(*again) & installed


def test_workflows_are_not_parsed_by_github_where_node_is_missing(tmp_path):
    bash, dirname = (str(shutil.which(name)) for name in ("bash", "dirname"))
    (tmp_path / "dirname").symlink_to(dirname)
    shown = subprocess.run(
        [bash, ROOT / ".ci" / "workflows"],
        env={"PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.splitlines() == [
        "workflows not parsed by GitHub's parser: node and npm are not installed"
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflow_calls_what_exists(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    commands = [step["run"] for job in load(path)["jobs"].values() for step in job["steps"] if "run" in step]
    for command in commands:
        assert set(re.findall(r"\bmake ([a-z]+)", command)) <= targets
        assert all((ROOT / script).is_file() for script in re.findall(r"\.ci/\w+", command))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_pinned_to_a_commit_with_its_version(path):
    used = re.findall(r"uses: +(.+)$", path.read_text(encoding="utf-8"), re.M)
    assert used
    assert [text for text in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", text)] == []


def test_an_action_has_one_commit_in_all_workflows():
    pinned = {
        text
        for path in WORKFLOWS
        for text in re.findall(r"uses: +(.+)$", path.read_text(encoding="utf-8"), re.M)
    }
    names = [text.partition("@")[0] for text in pinned]
    assert len(names) == len(set(names))


def test_classifiers_are_the_versions_of_python_that_ci_tests():
    matrix = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in project["classifiers"]
    ]
    assert [found[1] for found in named if found] == matrix
    assert project["requires-python"] == f">={matrix[0]}"


def test_ci_prints_coverage_into_the_summary_and_tests_the_lowest_versions():
    jobs = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    coverage, lowest = (
        [step["run"] for step in jobs[name]["steps"] if "run" in step] for name in ("coverage", "lowest")
    )
    assert coverage[0] == "make coverage"
    assert coverage[1].endswith('>> "$GITHUB_STEP_SUMMARY"')
    assert any("-c constraints-lowest.txt" in command for command in lowest)


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


def test_each_night_runs_what_is_slow_the_smoke_runs_and_the_settings_that_contributing_names(request):
    workflow = load(ROOT / ".github" / "workflows" / "slow.yml")
    assert [entry["cron"].split()[2:] for entry in workflow["on"]["schedule"]] == [["*", "*", "*"]]
    jobs = workflow["jobs"]
    assert " -m slow" in jobs["slow"]["steps"][-1]["run"]
    assert jobs["smoke"]["steps"][-1]["run"] == ".ci/smoke"
    section = (
        (ROOT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("\n## Tests\n")[2]
        .partition("\n## ")[0]
    )
    entries = jobs["settings"]["strategy"]["matrix"]["include"]
    assert len(entries) == 4
    for entry in entries:
        setting = entry.get("variables") or entry["words"].partition(" ")[0]
        assert setting in section
    used = [entry["variables"] for entry in entries if "variables" in entry]
    assert "ACTLAB_TEST_THREADS" in os.environ, "conftest sets it"
    assert any(word.startswith("ACTLAB_TEST_THREADS=") for word in used)
    assert request.config.getoption("--random-order", default=-1) != -1
    assert jobs["macos"]["runs-on"].startswith("macos-")
    assert jobs["macos"]["steps"][-1]["run"] == "make test"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_script_is_executable_and_parses(path):
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", path], check=True)


def test_ci_parses_workflows_and_lints_before_it_tests():
    steps = re.findall(r"^step (.*)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M)
    assert steps == [".ci/workflows", "make lint", "make test", ".ci/smoke", "make cluster"]


def test_citation_is_valid_and_agrees_with_the_package():
    citation = load(ROOT / "CITATION.cff")
    validate(citation, "citation-file-format.json")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    assert project["dynamic"] == ["version"]
    assert citation["version"] == settings["tool"]["hatch"]["version"]["fallback-version"]
    assert citation["license"] == project["license"]
    cited = {identifier["value"] for paper in citation["references"] for identifier in paper["identifiers"]}
    assert cited == {"arXiv:1606.08415", "arXiv:1511.07289"}


def test_licence_is_the_verbatim_apache_text():
    # The text has 202 lines of its own, an empty one first; its ends are enough to notice a cut or a change.
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert len(text.encode()) == 11358
    assert text.lstrip().startswith("Apache License\n                           Version 2.0, January 2004")
    assert text.rstrip().endswith("limitations under the License.")
