"""Rules of every test: no network, no file outside temporary folders, fixed seeds, `cli`."""

import atexit
import functools
import gc
import importlib
import importlib.metadata
import ipaddress
import itertools
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# Rewritten assertions, also hypothesis's, are kept on disk until all tests are collected: else each
# worker rewrites every file.
_WITHOUT_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False

from hypothesis import settings  # noqa: E402

import actlab  # noqa: E402, F401  (before torchmetrics, which imports torchvision)
import printed_blocks  # noqa: E402
from suite_times import SuiteTimes  # noqa: E402

# Environment first: libraries read it when they are imported, child processes inherit it.
_MEMORY = Path("/dev/shm")  # for thousands of small files: on a disk they take a tenth longer
_IN_MEMORY = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 * 2**30
if _IN_MEMORY:
    # Pytest keeps what failed tests leave there
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
_SCRATCH = Path(
    tempfile.mkdtemp(prefix="actlab-tests-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
)
atexit.register(shutil.rmtree, _SCRATCH, ignore_errors=True)
if _IN_MEMORY:
    tempfile.tempdir = os.environ["TMPDIR"] = str(_SCRATCH)
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HOME=str(_SCRATCH / "hf"),
    ACTLAB_CACHE=str(_SCRATCH / "cache"),
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    WANDB_DIR=str(_SCRATCH),
    WANDB_CACHE_DIR=str(_SCRATCH / "wandb-cache"),
    WANDB_CONFIG_DIR=str(_SCRATCH / "wandb-config"),
    WANDB_DATA_DIR=str(_SCRATCH / "wandb-data"),
    WANDB_ERROR_REPORTING="false",
    MPLBACKEND="Agg",
)
# Each Trainer asks every installed package for entry points: once is enough, none is installed
# meanwhile.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)  # type: ignore[assignment]

# One thread, however many cores there are: workers are the parallelism, and sums are the same
# everywhere.
THREADS = int(os.environ.setdefault("ACTLAB_TEST_THREADS", "1"))
os.environ["OMP_NUM_THREADS"] = str(THREADS)


settings.register_profile("timeless", settings(), deadline=None)  # a busy machine fails no test
settings.load_profile("timeless")


class NetworkRefusedError(RuntimeError):
    """Not an OSError, so that no library takes it for a bad connection and tries again."""


def _is_open(host: Any) -> bool:
    """Whether tests may reach a host: loopback, which DDP, Ray and wandb need, or our own name."""
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "", "localhost", "0.0.0.0", "::", socket.gethostname()):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refusing(function: Callable[..., Any], host_of: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, unless it would leave this computer."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        if not _is_open(host := host_of(*args, **kwargs)):
            raise NetworkRefusedError(f"tests have no network, but something asked for {host!r}")
        return function(*args, **kwargs)

    return guarded


def _peer(sock: socket.socket, address: Any) -> Any:
    """The host a socket is told to connect to; None for Unix sockets."""
    return address[0] if sock.family in (socket.AF_INET, socket.AF_INET6) else None


def _first(host: Any = None, *_: Any, **__: Any) -> Any:
    return host


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what is printed into pages")
    parser.addoption(
        "--random-order", type=int, metavar="SEED", help="shuffle files and their tests"
    )


def pytest_report_header(config: pytest.Config) -> str:
    order = config.getoption("random_order")
    return (
        f"threads: {THREADS}, order: {'as written' if order is None else f'--random-order {order}'}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle if asked to, in every worker alike; tests of a file stay together with fixtures."""
    if (seed := config.getoption("random_order")) is None:
        return
    draw = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    for group in (order := list(files.values())):
        draw.shuffle(group)
    draw.shuffle(order)
    items[:] = itertools.chain.from_iterable(order)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names of tests hold no bytes, which may hold a time, and no path of this checkout."""
    if isinstance(val, bytes):
        return argname
    here = f"{Path(__file__).parents[1]}{os.sep}"
    return val.replace(here, "") if isinstance(val, str) and here in val else None


def pytest_configure(config: pytest.Config) -> None:
    if "gpu" not in config.getoption("markexpr").replace("not gpu", ""):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all other tests say what holds on a CPU
    config.pluginmanager.register(SuiteTimes())
    if getattr(config.option, "cov_source", None):
        from actlab.engines.workers import start_server

        start_server()  # here, in a folder that stays: in each worker coverage asks for it
    patch = pytest.MonkeyPatch()
    for name in ("connect", "connect_ex"):
        patch.setattr(socket.socket, name, _refusing(getattr(socket.socket, name), _peer))
    for name in ("getaddrinfo", "gethostbyname"):
        patch.setattr(socket, name, _refusing(getattr(socket, name), _first))


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    """Undo what Lightning leaves in torch's classes after an error in a hook for data loaders."""
    yield
    if "torch" in sys.modules:
        from torch.utils.data import BatchSampler, DataLoader

        for kind in (DataLoader, BatchSampler):
            for name in ("__init__", "__setattr__", "__delattr__"):
                if (left := f"__old{name}") in vars(kind):
                    setattr(kind, name, getattr(kind, left))
                    delattr(kind, left)


@pytest.fixture(autouse=True)
def _seeds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Global generators start every test alike; what Lightning remembers of a test is dropped."""
    import numpy as np
    import torch
    from lightning_utilities.core.rank_zero import rank_zero_only

    _forget_seeds()
    # A test may be of another device than 0
    monkeypatch.setattr(rank_zero_only, "rank", 0, raising=False)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    torch.set_flush_denormal(False)  # an earlier test may have run a command that trains
    yield
    _forget_seeds()  # before fixtures of the next module build tasks


def _forget_seeds() -> None:
    """Remove what `seed_everything` has set, for good: also what a fixture of a module has left."""
    for variable in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        os.environ.pop(variable, None)


@pytest.fixture(scope="session", autouse=True)
def _timed_in_one_round() -> Iterator[None]:
    """Workers time costs in one round, and these are kept on a busy machine."""
    from child_processes import serve

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("actlab.engines.workers._serve", serve)
        patch.setattr("actlab.engines.running.busy", lambda costs: "")
        yield


@pytest.fixture(autouse=True)
def _untried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes time is tried where the mark ``tries_stacks`` asks for it."""
    trains = {"actlab.engines.running", "actlab.checks.stack_trial"} & sys.modules.keys()
    if trains and "tries_stacks" not in request.keywords:
        from tiny_study import leave_untried

        leave_untried(monkeypatch)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures without pictures, which take most time, where a test asks what else is there."""
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda figure, file, **options: file.write_text("<svg/>"),
    )


@pytest.fixture
def shows(request: pytest.FixtureRequest) -> Callable[[Path, str, str], None]:
    """Compare a block of a page with the output, as `printed_blocks` does; see ``--rewrite``."""

    def compare(page: Path, shown: str, printed: str) -> None:
        if printed_blocks.allows(shown, printed):
            return
        if printed_blocks.UNTIMED in printed:
            pytest.skip("a busy machine prints a table without times")
        assert request.config.getoption("rewrite"), (
            f"{page} shows\n{shown}\nbut this is printed\n{printed}"
        )
        printed_blocks.rewrite(page, shown, printed)

    return compare


@pytest.fixture
def programs() -> Path:
    """Programs that tests run in processes of their own, or give to actlab as a user's files."""
    return Path(__file__).with_name("programs")


@pytest.fixture
def program(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Copy a program to ``tmp_path``, as a user's file that the test may edit; return its path."""

    def copied(name: str) -> Path:
        monkeypatch.delitem(sys.modules, name, raising=False)  # the copy of an earlier test
        return Path(shutil.copy(programs / f"{name}.py", tmp_path))

    return copied


@pytest.fixture
def spawning(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spawned processes import actlab first, as a script would; their main module is pytest."""
    monkeypatch.setenv("PYTHONPATH", str(programs / "spawned"), prepend=os.pathsep)


class Outcome(NamedTuple):
    """What a command left: exit code and the two texts."""

    code: int
    out: str
    err: str

    def succeeded(self) -> str:
        """Standard output of a command that must end well."""
        assert self.code == 0, self.err
        return self.out

    @property
    def rejection(self) -> str:
        """The one line of a command that rejected its input."""
        *before, last = self.err.strip().splitlines()
        assert (self.code, last.startswith("actlab: error: ")) == (2, True), self
        assert not any("error" in line.lower() or "Traceback" in line for line in before), self.err
        return last


def in_this_process(words: Sequence[object]) -> list[str]:
    """Options to train a study in this process, where tests patch, unless the words say how."""
    says = {"--jobs", "--cluster", "--shard", "--help"}.intersection(words)
    trains = tuple(words[:2]) == ("study", "run") or words[:1] == ("tune",)
    return ["--jobs", "0"] if trains and not says else []


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run ``actlab`` with some words in this process, through its public door."""
    from actlab.__main__ import main
    from actlab.engines.workers import Inline

    # Here, not in `run`, which the fuzz gives little memory: these import torch.
    monkeypatch.setattr("actlab.checks.cost.ROUNDS", 1)  # times of tests say nothing
    monkeypatch.setattr("actlab.cli.study.Worker", Inline)  # quicker than a process for each plan
    # A busy machine adds no line
    monkeypatch.setattr("actlab.engines.workers.SILENT", threading.TIMEOUT_MAX)

    def run(*words: object) -> Outcome:
        # Without the words of pytest, which LightningCLI would compare with ours.
        monkeypatch.setattr(sys, "argv", ["actlab"])
        capsys.readouterr()
        try:
            code = main([*map(str, words), *in_this_process(words)])
        except SystemExit as stop:  # --help of a parser
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def succeed(cli: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Run ``actlab`` as `cli` does; the command must succeed."""

    def run(*words: object) -> Outcome:
        outcome = cli(*words)
        assert outcome.code == 0, outcome.out + outcome.err
        return outcome

    return run


QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, where it and the package that drives it are installed."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=[*QUIET])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a file in a fresh window; at its end there are no errors and no further requests."""
    said: list[str] = []
    asked: set[str] = set()
    opened, windows = set(), []

    def open_(file: Path, **options: Any) -> Any:
        window = browser.new_context(offline=True, **options)
        windows.append(window)
        page = window.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.add(request.url))
        page.goto(file.as_uri())
        opened.add(file.as_uri())
        return page

    yield open_
    for window in windows:
        window.close()
    assert (said, asked) == ([], opened)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave what a module of tests has imported and cached out of later collections, too."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


# To import
HEAVY = (
    "actlab.engines.evaluation",
    "actlab.engines.training",
    "matplotlib.pyplot",
    "torch._dynamo",
)


def pytest_collection_finish() -> None:
    """Leave imported objects out of later collections of garbage, which would look through all.

    Engines collect after each job; where many tests are run, what most of them import is imported
    before.
    """
    sys.dont_write_bytecode = _WITHOUT_BYTECODE
    if "PYTEST_XDIST_WORKER" in os.environ:
        for name in HEAVY:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
