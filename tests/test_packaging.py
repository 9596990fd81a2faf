"""The wheel is complete: built, installed outside the clone, it runs a study by its name."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words: object, cwd: Path) -> str:
    """Standard output of a command that must succeed; what it said otherwise is the failure's text."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin folder of a fresh environment: the wheel, and the other packages of the running one."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    bin_ = home / "bin"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        bin_ / "python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=home,
    )
    # A folder named by a .pth comes last, and the .pth files in it, such as the clone's own, are not read.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return bin_


@pytest.mark.parametrize("folder", ["configs", "data/samples", "data/published"])
def test_wheel_carries_what_travels(wheel, folder):
    files = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
    carried = {
        info.filename.removeprefix("actlab/"): info.file_size for info in zipfile.ZipFile(wheel).infolist()
    }
    assert files
    assert {name for name in files if not Path(name).name.startswith(".")} <= carried.keys()
    assert [name for name in files if carried.get(name) == 0] == [], "an empty file was packed"


def test_wheel_carries_what_pages_are_made_of(wheel):
    folder = ROOT / "src/actlab/reports/pages/templates"
    files = {p.relative_to(ROOT / "src").as_posix() for p in folder.rglob("*") if p.is_file()}
    assert len(files) >= 7
    assert files <= set(zipfile.ZipFile(wheel).namelist())


def test_wheel_has_the_licence_and_is_small(wheel):
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    assert wheel.stat().st_size < 10e6


def test_installed_package_is_the_wheels(installed, tmp_path):
    path = Path(run(installed / "python", "-c", "import actlab; print(actlab.__file__)", cwd=tmp_path).strip())
    assert path.is_relative_to(installed.parent)


def test_installed_package_finds_a_study_by_name(installed, tmp_path):
    code = (
        "import actlab.storage.resources as r; print(r.config_file('gelu_mnist_classifier', 'configs/studies'))"
    )
    path = Path(run(installed / "python", "-c", code, cwd=tmp_path).strip())
    assert path.is_relative_to(installed.parent)


@pytest.mark.slow  # about a minute on two busy cores: 36 runs
def test_installed_command_runs_a_study_by_name(installed, tmp_path):
    run(
        installed / "actlab",
        "study",
        "run",
        "gelu_mnist_classifier",
        "--smoke",
        "--runs-dir",
        tmp_path / "runs",
        cwd=tmp_path,
    )
    assert list((tmp_path / "runs").rglob("result.json"))
    assert {p.name for p in tmp_path.iterdir()} == {"runs"}, "a study leaves files in its runs folder only"
