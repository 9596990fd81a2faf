"""The wheel is complete, its version is the tag's or the fallback; constraints match pyproject."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from actlab.scoreboard import definition
from page_blocks import blocks_of, outputs_of

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FALLBACK = PYPROJECT["tool"]["hatch"]["version"]["fallback-version"]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
RUNTIME = [*PYPROJECT["project"]["dependencies"], *EXTRAS["workspaces"]]


def run(*words: object, cwd: Path) -> str:
    """Standard output of a command that must succeed; other output is the failure's text."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if key != "PYTHONPATH" and not key.startswith("GIT_")
    }
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, out: Path) -> Path:
    """The wheel of a source folder, built in this environment, so without the network."""
    run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=out
    )
    (built,) = out.glob("*.whl")
    return built


def test_every_measurement_of_a_gpu_is_packaged():
    """From which a device is known to have shown CUDA graphs to be right."""
    target = PYPROJECT["tool"]["hatch"]["build"]["targets"]
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("benchmarks/gpu_*.json")}
    assert found
    assert {name: target["wheel"]["force-include"].get(name) for name in found} == {
        name: f"actlab/{name}" for name in found
    }
    assert found <= {*target["sdist"]["include"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin folder of a fresh environment: the wheel, and the running one's other packages."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    bin_ = home / "bin"
    quietly = ("install", "--quiet", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "--python", bin_ / "python", *quietly, wheel, cwd=home)
    # A folder named by a .pth comes last, and the .pth files in it, such as the clone's own, are
    # not read.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return bin_


def test_wheel_carries_what_travels(wheel):
    carried = {info.filename: info.file_size for info in zipfile.ZipFile(wheel).infolist()}
    shipped = ("configs", "data/samples", "data/published", "results/scoreboard")
    for folder in (*shipped, "src/actlab/reports/pages/templates"):
        found = [
            path for path in (ROOT / folder).rglob("*") if path.is_file() and path.name[0] != "."
        ]
        names = {
            f"actlab/{path.relative_to(ROOT).as_posix()}".replace("actlab/src/", "")
            for path in found
        }
        assert names
        assert names <= carried.keys()
        assert [name for name in names if carried[name] == 0] == [], "an empty file was packed"
    for task in definition.load().with_tables.values():
        assert {
            f"actlab/{data_set.table}/table.json" for data_set in task.data.values()
        } <= carried.keys()


def test_wheel_has_the_licence_and_is_small(wheel):
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    assert wheel.stat().st_size < 10e6


@pytest.mark.slow  # a fresh environment; by default the files in the wheel are compared
def test_installed_package_is_the_wheels_and_finds_a_study_by_name(installed, tmp_path):
    code = (
        "from actlab.storage import resources as r; "
        "print(r.__file__, r.config_file('demo', 'configs/studies'))"
    )
    for path in run(installed / "python", "-c", code, cwd=tmp_path).split():
        assert Path(path).is_relative_to(installed.parent)


@pytest.mark.slow  # the same
def test_installed_package_reports_the_version_of_the_wheel(installed, wheel, tmp_path):
    name, version, *_ = wheel.name.split("-")
    assert name == "actlab"
    assert run(installed / "actlab", "--version", cwd=tmp_path).strip() == version
    code = "import sys, actlab; print('importlib.metadata' in sys.modules, actlab.__version__)"
    assert run(installed / "python", "-c", code, cwd=tmp_path).split() == ["False", version]


@pytest.mark.slow  # child processes import everything
def test_installed_command_imports_from_the_current_folder(installed, tmp_path):
    (tmp_path / "mine.py").write_text("def act(x):\n    return x.relu()\n", encoding="utf-8")
    words = ["study", "run", "demo", "--smoke", "--seeds", "1", "--activation", "mine:act"]
    run(installed / "actlab", *words, cwd=tmp_path)
    assert list((tmp_path / "runs/demo-smoke").glob("act-*/result.json"))


def git(*words: object, cwd: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"]
    run("git", *who, *words, cwd=cwd)


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A git repository for the version: a commit with the tag v9.8.7, and one after it."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path_factory.mktemp("repository")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, root / file)
    commit = ["commit", "--quiet", "--allow-empty", "-m", "-"]
    for words in (
        ["init", "--quiet"],
        ["add", "."],
        commit,
        ["tag", "v9.8.7"],
        commit,
        ["tag", "paper-2016"],
    ):
        git(*words, cwd=root)
    return root


def clone(repository: Path, to: Path) -> None:
    git("clone", "--quiet", repository, to, cwd=repository)


def shallow_clone(repository: Path, to: Path) -> None:
    git("clone", "--quiet", "--depth", "1", "--no-tags", repository.as_uri(), to, cwd=repository)


def archive(repository: Path, to: Path) -> None:
    git("archive", "--output", to.with_suffix(".tar"), "HEAD", cwd=repository)
    with tarfile.open(to.with_suffix(".tar")) as packed:
        packed.extractall(to, filter="data")


@pytest.mark.parametrize(
    ("copy", "version"), [(clone, "9.8.7"), (shallow_clone, FALLBACK), (archive, FALLBACK)]
)
def test_version_is_that_of_the_tag_or_the_fallback(repository, tmp_path, copy, version):
    copy(repository, tmp_path / "source")
    assert (
        run(sys.executable, "-m", "hatchling", "version", cwd=tmp_path / "source").strip()
        == version
    )


def test_version_does_not_change_the_runs_of_a_study(cli, monkeypatch, tmp_path):
    plans = []
    for version in ("1.0", "9.9.9"):
        metadata = tmp_path / version / f"actlab-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.4\nName: actlab\nVersion: {version}\n")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / version)
            assert cli("--version").out.strip() == version
            plans.append(cli("study", "plan", "demo", "--runs-dir", tmp_path / "runs").out)
    assert "gelu-seed0-" in plans[0]
    assert plans[0] == plans[1]


def pins(file: str) -> dict[str, Version]:
    """The versions of a constraints file, by normalised name."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def test_constraints_hold_each_dependency_and_the_lowest_its_lower_bound():
    tested, oldest = pins("constraints.txt"), pins("constraints-lowest.txt")
    for requirement in map(Requirement, RUNTIME):
        (bound,) = [
            Version(spec.version) for spec in requirement.specifier if spec.operator == ">="
        ]
        name = canonicalize_name(requirement.name)
        assert tested[name] in requirement.specifier, name
        assert oldest[name].release[: len(bound.release)] == bound.release, name


def test_build_requirements_are_installed_with_dev():
    assert set(PYPROJECT["build-system"]["requires"]) <= set(EXTRAS["dev"])


def followed(page: str, bin_: Path, folder: Path) -> dict[str, str]:
    """Do in a folder what a page says: write its files, run its commands and programs in order.

    Commands of ``make`` and of a clone's environment are left out: `.github/workflows/ci.yml` runs
    the former in a clone, and `bin_` is the environment here. A study of a reader's FOLDER of data
    is run with ``--smoke``, on samples: on all of its data it takes hours.

    Returns:
        Standard output of each line of shell and each program.
    """
    said = {}
    for block in blocks_of(ROOT / page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            said[block.text] = run(bin_ / "python", "-c", block.text, cwd=folder)
        elif block.language in ("sh", "bash"):
            for line in block.text.splitlines():
                command = (
                    re.sub(r"(\s+#.*)?$", " --smoke", line, count=1) if "FOLDER" in line else line
                )
                if not line.startswith(("make ", "source .venv/")):
                    said[line] = run(
                        "bash", "-c", f'export PATH="{bin_}:$PATH"; {command}', cwd=folder
                    )
    return said


def output_of(words: str, said: dict[str, str]) -> str:
    """What the one command or program that contains some words printed."""
    (output,) = (text for line, text in said.items() if words in line)
    return output


@pytest.mark.slow  # fifteen seeds of five activations: some minutes
@pytest.mark.timeout(1800)
def test_the_walk_of_a_new_user_runs_from_the_wheel(installed, shows, tmp_path):
    said = followed("docs/tutorial.md", installed, tmp_path)
    for command, block in outputs_of(ROOT / "docs/tutorial.md"):
        shows(ROOT / "docs/tutorial.md", block.text, said[command.text.strip()])
    table = output_of("--html", said)
    assert "75 of 75 runs finished" in table
    assert re.search(
        r"^> MyActivation +(better|worse|equivalent|no significant difference)", table, re.M
    )
    assert (tmp_path / "runs/demo/figures/curves.pdf").is_file()
    assert "\\textbf{MyActivation}" in (tmp_path / "table.tex").read_text()
    assert any("test/error" in text for text in said.values())
    assert "[1000 rows x 12 columns]" in [*said.values()][-1]


# Fifteen seeds of five activations, and eight tasks of the scoreboard: some minutes
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_readme_runs_from_the_wheel(installed, tmp_path):
    said = followed("README.md", installed, tmp_path)
    assert "10 of 10 runs finished" in output_of("demo --smoke", said)
    table = output_of("--seeds 15", said)
    assert "75 of 75 runs finished" in table
    assert re.search(
        r"^> MyActivation +(better|worse|equivalent|no significant difference)", table, re.M
    )
    assert "Smoke runs decide nothing" in output_of("actlab scoreboard", said)
    assert "MyActivation" in output_of("gelu_mnist_classifier", said)
    files = {path.name for path in tmp_path.iterdir()} - {"my_activation.py", "__pycache__"}
    assert files == {"runs"}, "a study leaves files in its runs folder only"
