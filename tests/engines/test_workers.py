"""Several processes train one study: the same numbers, and a worker that dies is replaced."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytorch_lightning as pl
import torch

from actlab.checks import cost
from actlab.datamodules import MNISTDataModule
from actlab.engines import packing, running, training, workers
from actlab.engines.jobs import Arranged, Job
from actlab.engines.pool import Pool
from actlab.engines.settings import Settings
from actlab.engines.workers import EndedError, Inline, Worker
from actlab.errors import ActlabError
from actlab.runtime import accidents, signals
from actlab.runtime.devices import VISIBLE
from actlab.studies import reading
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder
from tiny_study import (
    PLAIN,
    RELU,
    TWO,
    KilledError,
    assert_same,
    ignore,
    load,
    shown_by,
    study_text,
)
from toys import QUIET, Frames, FrameTask

SETTINGS = Settings(jobs=2)


@pytest.fixture
def runs(tmp_path):
    return load(tmp_path, overrides=["model.network.dropout=0.3", "model.optimizer.lr=0.01"]).runs()


def train(jobs, root, progress=ignore, settings=SETTINGS, **options):
    with shown_by(progress):
        return Pool(Arranged(jobs, settings, True, []), root, **options).train(jobs)


def work(runs, root, stacked=True, progress=ignore, **options):
    jobs = packing.pack(runs, root, untried="" if stacked else PLAIN, jobs=2).jobs
    assert len(jobs) > 1
    return train(jobs, root, progress, **options)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of the runs, trained in this process with one thread."""
    folder = tmp_path_factory.mktemp("straight")
    runs = load(folder, overrides=["model.network.dropout=0.3", "model.optimizer.lr=0.01"]).runs()
    for stacked in (True, False):
        jobs = packing.pack(
            runs, folder / str(stacked), untried="" if stacked else PLAIN, jobs=2
        ).jobs
        assert all(training.work(job, folder / str(stacked)) for job in jobs)
    return folder


@pytest.mark.parametrize("name", ["Ageing", "Defaulted"])
def test_a_run_does_not_depend_on_runs_before_it(program, tmp_path, monkeypatch, name):
    """Not by a counter of a class, nor by a parameter of all instances: each job has a process."""
    program("shared_state")
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(study_text(f'model.activation: ["./shared_state.py:{name}"]'))
    jobs = [Job((run,)) for run in reading.load("tiny.yaml").runs()]
    for place, order in {"forwards": jobs, "backwards": jobs[::-1]}.items():
        train(order, tmp_path / place, settings=Settings())
    assert_same([job.runs[0] for job in jobs], tmp_path / "forwards", tmp_path / "backwards")


class Deadly(pl.Callback):
    """Ends its process, as the system does when memory is short: always, or the first time."""

    stackable = True

    def __init__(self, mark: str = "", number: int = signal.SIGKILL) -> None:
        self.mark, self.number = mark, number

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1 and not (self.mark and Path(self.mark).exists()):
            if self.mark:
                Path(self.mark).touch()
            os.kill(os.getpid(), self.number)


@pytest.fixture
def importable(monkeypatch):
    """Let workers import the callbacks of this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.mark.parametrize("stacked", [True, False])
def test_workers_leave_what_one_process_leaves(runs, tmp_path, straight, stacked):
    seen = {}
    assert work(runs, tmp_path, stacked, lambda name, fraction: seen.update({name: fraction})) == []
    assert seen == dict.fromkeys((run.id for run in runs), 1.0)
    assert_same(runs, tmp_path, straight / str(stacked))


@pytest.mark.parametrize("stacked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_worker_that_dies_is_replaced_and_its_job_goes_on(runs, tmp_path, straight, stacked):
    killed: list[Any] = []

    def kill(name, fraction):
        if not killed and 0.3 < fraction < 0.9:
            killed.append(_workers()[0])
            killed[0].kill()

    work(runs, tmp_path, stacked, kill)
    assert killed
    assert_same(runs, tmp_path, straight / str(stacked))


def _workers():
    """The processes that train: those without children of their own but the server's helpers."""
    return [c for c in psutil.Process().children(recursive=True) if _is_worker(c)]


def _is_worker(process):
    """Workers are children of the server, which is ours."""
    with contextlib.suppress(psutil.Error):
        return process.ppid() != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.usefixtures("importable")
def test_a_job_that_kills_every_process_fails_and_the_others_go_on(tmp_path):
    study = load(
        tmp_path, overrides=["model.network.dropout=0.0", "model.optimizer.lr=0.01", "seeds=1"]
    )
    safe, deadly = study.runs()
    deadly.config["trainer"]["callbacks"].append({"class_path": "test_workers.Deadly"})
    assert train([Job((r,), True) for r in (safe, deadly)], tmp_path) == []
    assert RunFolder(tmp_path, safe).finished
    assert "ended by signal 9 in 3 attempts" in RunFolder(tmp_path, deadly).state.reason


@pytest.mark.usefixtures("importable")
def test_a_worker_that_is_terminated_is_replaced(tmp_path):
    """Lightning would turn the signal into an exit with code 0, which is not tried again."""
    run = load(tmp_path, overrides=["seeds=1"]).runs()[0]
    arguments = {"mark": str(tmp_path / "mark"), "number": int(signal.SIGTERM)}
    callback = {"class_path": "test_workers.Deadly", "init_args": arguments}
    run.config["trainer"]["callbacks"].append(callback)
    assert train([Job((run,), True)], tmp_path, settings=Settings()) == []
    assert RunFolder(tmp_path, run).finished


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """The file that endless code creates: from then on its worker counts as silent for a day."""
    mark, check = tmp_path / "endless", Worker._check

    def checked(self):
        if mark.exists() and not self.pipe.poll():  # all messages before the mark have been read
            mark.unlink()
            self._last_message -= 86_400.0
        check(self)

    monkeypatch.setattr(Worker, "_check", checked)
    return mark


class NeverReturns(pl.Callback):
    """Computes without end from the second epoch on."""

    stackable = True

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def on_train_epoch_start(self, trainer, pl_module):
        while trainer.current_epoch == 1:
            Path(self.mark).touch()
            time.sleep(60)


@pytest.mark.usefixtures("importable")
def test_a_run_that_makes_no_progress_fails_and_the_others_go_on(tmp_path, endless):
    study = load(
        tmp_path, overrides=["model.network.dropout=0.0", "model.optimizer.lr=0.01", "seeds=1"]
    )
    safe, silent = study.runs()
    callback = {"class_path": "test_workers.NeverReturns", "init_args": {"mark": str(endless)}}
    silent.config["trainer"]["callbacks"].append(callback)
    assert train([Job((r,), True) for r in (silent, safe)], tmp_path, settings=Settings()) == []
    assert RunFolder(tmp_path, safe).finished
    assert "made no progress for " in RunFolder(tmp_path, silent).state.reason


def test_an_activation_that_never_returns_is_named_and_the_others_are_trained(
    tmp_path, monkeypatch, endless
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless.py").write_text(
        f"import time\n\n\ndef endless(x):\n    open({str(endless)!r}, 'w').close()\n"
        "    time.sleep(1e6)\n"
    )
    study = load(
        tmp_path,
        overrides=["model.network.dropout=0.0", "model.optimizer.lr=0.01", "seeds=1"],
        activations=["./endless.py:endless"],
    )
    assert running.run(StudyFolder(study, tmp_path / "runs"), running.Engine(stalled=60.0)) == 1
    failed = [
        run for run in study.runs() if RunFolder(tmp_path / "runs", run).state.kind == "failed"
    ]
    assert [str(run.spelling).endswith("endless.py:endless") for run in failed] == [True]
    assert (
        "activation endless cannot be tried: the process made no progress for 60 s"
        in RunFolder(tmp_path / "runs", failed[0]).state.reason
    )


@pytest.mark.parametrize("here", [False, True], ids=["a worker", "this process"])
def test_an_error_of_a_job_ends_no_other_job(runs, tmp_path, here):
    runs[0].config["data"] = {**runs[0].config["data"], "init_args": {"dataset": "./nowhere"}}
    jobs = [Job((run,), True) for run in runs[:2]]
    if here:
        assert all(Inline().call(training.work, job, tmp_path) for job in jobs)
    else:
        train(jobs, tmp_path, settings=Settings())
    failed, other = (RunFolder(tmp_path, run).state for run in runs[:2])
    assert "nowhere" in failed.reason
    assert other.kind == "finished"


class Lost(pl.Callback):
    """Fails as an accelerator does after an assert: with the run of seed 0, also in a stack."""

    stackable = True

    def on_train_epoch_start(self, trainer, pl_module):
        if 0 in pl_module.stream.seeds:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")


@pytest.mark.usefixtures("importable")
def test_a_lost_accelerator_ends_its_worker_and_the_other_runs_go_on(tmp_path, monkeypatch, capsys):
    runs = load(tmp_path, overrides=[*TWO, "trainer.max_epochs=1"]).runs()
    for run in runs:
        run.config["trainer"]["callbacks"].append({"class_path": "test_workers.Lost"})
    asked = []
    ask = Worker.ask
    monkeypatch.setattr(
        Worker,
        "ask",
        lambda self, *args, **how: asked.append(self.process) or ask(self, *args, **how),
    )
    assert train([Job(tuple(runs), True)], tmp_path, settings=Settings()) == []
    states = {run.seed: RunFolder(tmp_path, run).state for run in runs}
    assert (states[0].kind, states[1].kind) == ("failed", "finished")
    assert "AcceleratorError: CUDA error: device-side assert triggered" in states[0].reason
    assert asked == [None] * 3  # the stack and each run had a process of its own


class Waiting(Frames):
    """Data that are prepared when a file appears."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def prepare_data(self) -> None:
        while not self.file.exists():
            time.sleep(0.05)


def fit(file):
    """Train by a plain Trainer."""
    pl.Trainer(**QUIET, max_epochs=1, precision="64-true").fit(
        FrameTask(0), datamodule=Waiting(file)
    )


@pytest.mark.usefixtures("importable")
def test_a_worker_lives_while_data_are_prepared(tmp_path, capsys):
    """Whoever prepares them: there is no limit, and the wait is printed."""
    file, printed = tmp_path / "there", ""
    with Worker() as worker:
        worker.ask(fit, file)
        begun = worker._last_message
        while "preparing the data: " not in printed:
            assert worker.receive() is None
            time.sleep(0.05)
            printed += capsys.readouterr().out
        assert worker._last_message > begun
        file.touch()
        worker.answer()
    assert printed.endswith(" s so far\n")


def sleeping():
    time.sleep(0.2)


def test_a_first_start_says_what_it_waits_for(monkeypatch, capsys):
    """At once: a process cannot be started before its server has loaded the libraries."""
    monkeypatch.setattr(workers, "SILENT", 0.0)
    monkeypatch.setattr(workers, "_loading_printed", threading.Event())
    start = workers._context().Process.start

    def checked(process):
        time.sleep(0.2)
        assert capsys.readouterr().err == "loading torch and Lightning …\n"
        start(process)

    monkeypatch.setattr(workers._context().Process, "start", checked)
    with Worker() as worker:
        worker.call(sleeping)
        worker.call(sleeping)
    assert capsys.readouterr().err == ""


def test_later_starts_do_not_repeat_what_they_wait_for(monkeypatch, capsys):
    monkeypatch.setattr(workers, "SILENT", 0.0)
    monkeypatch.setattr(workers, "_loading_printed", threading.Event())
    for _ in range(2):
        with Worker() as worker:
            worker.call(sleeping)
    assert capsys.readouterr().err == "loading torch and Lightning …\n"


def test_the_process_that_plans_has_ended_when_others_train(tmp_path, monkeypatch):
    def training_begins(self, jobs):
        assert _gone()
        raise KilledError

    monkeypatch.setattr(Pool, "train", training_begins)
    with pytest.raises(KilledError):
        running.run(
            StudyFolder(load(tmp_path, overrides=TWO), tmp_path / "runs"), running.Engine(jobs=1)
        )


def test_data_are_prepared_first_with_all_threads(tmp_path, monkeypatch):
    """Not on the one thread on which activations are tried."""
    prepared, threads = MNISTDataModule.prepare_data, []

    def noted(self):
        threads.append(torch.get_num_threads())
        prepared(self)

    monkeypatch.setattr(MNISTDataModule, "prepare_data", noted)
    torch.set_num_threads(2)
    study = load(tmp_path, overrides=[*TWO, "trainer.max_epochs=1"])
    assert running.run(StudyFolder(study, tmp_path / "runs"), running.Engine(jobs=0)) == 0
    assert threads[0] == 2


def start_method():
    """The method by which processes that a module of a user starts are started."""
    return multiprocessing.get_start_method(allow_none=True)


def misplaced():
    """Raise what comes from actlab's code alone."""
    return cost.first_batch(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("importable")
def test_a_worker_starts_processes_as_a_script_does():
    with Worker() as worker:
        assert worker.call(start_method) is None
        with pytest.raises(
            ActlabError, match=r"AttributeError: .* \(.*test_workers\.py, line \d+: return "
        ):
            worker.call(misplaced)
        # A fault of actlab
        with pytest.raises(EndedError, match="exited with code 1 before it answered"):
            worker.call("actlab.checks.cost:first_batch", None)


def test_stopping_ends_the_workers(runs, tmp_path):
    def stop(name, fraction):
        raise KilledError

    with pytest.raises(KilledError):
        work(runs, tmp_path, progress=stop)
    assert _gone()


def _gone():
    """Whether no worker is left, but for a moment that it may take."""
    deadline = time.monotonic() + 20
    while (left := _workers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not left


class Eager(pl.Callback):
    """Reports progress after each batch, not every second."""

    def on_train_start(self, *_: object) -> None:
        signals.EVERY = 0.0  # of the process that trains


@pytest.mark.usefixtures("importable")
def test_a_worker_reports_progress_within_an_epoch(tmp_path):
    study = load(
        tmp_path, overrides=["model.network.dropout=0.0", "model.optimizer.lr=0.01", "seeds=1"]
    )
    run = study.runs()[0]
    run.config["trainer"]["callbacks"].append({"class_path": "test_workers.Eager"})
    run.config["trainer"]["max_epochs"] = 1
    told = []
    assert (
        train(
            [Job((run,), True)], tmp_path, lambda run, fraction: told.append(fraction), Settings()
        )
        == []
    )
    within = [fraction for fraction in told if 0 < fraction < 0.99]
    assert within
    assert told == sorted(told)
    assert told[-1] == 1


def test_few_groups_are_cut_so_that_all_have_work(runs, tmp_path):
    one = load(tmp_path, overrides=RELU).runs()
    jobs = packing.pack(one, tmp_path, jobs=2).jobs
    assert [len(job.runs) for job in jobs] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("devices", [1, 2])
def test_signals_reach_the_workers(tmp_path, number, devices):
    load(tmp_path)
    words = ["study", "run", "tiny.yaml", "--jobs", "2", "--set", "trainer.max_epochs=500"]
    recorded = 8
    if devices == 2:
        words += [
            f"--set=trainer.{word}" for word in ("devices=2", "strategy=ddp", "accelerator=cpu")
        ]
        recorded = 1
    process = subprocess.Popen(
        [sys.executable, "-m", "actlab", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 200
    while (
        len(list(tmp_path.glob("runs/tiny/*/metrics.csv"))) < recorded
        and time.monotonic() < deadline
    ):
        time.sleep(0.2)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4 - devices
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert "the same command resumes" in err


def test_workers_have_one_hash_seed_and_standard_modules(tmp_path, programs):
    """A file of the current folder replaces no standard module, but can be imported by its name."""
    for name in ("random", "statistics", "types", "queue"):
        (tmp_path / f"{name}.py").write_text(
            "raise ImportError(f'{__file__} is in place of a standard module')"
        )
    (tmp_path / "folder_of_mine.py").write_text("def start():\n    return 'imported'\n")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    done = subprocess.run(
        [sys.executable, programs / "asking_workers.py"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = subprocess.check_output(
        [sys.executable, "-c", "print(hash('a text'))"],
        env=variables | {"PYTHONHASHSEED": "0"},
        text=True,
    )
    assert done.stdout.split() == [f"imported,{expected.strip()}"] * 2


def shown():
    """The process, and the accelerators that it sees."""
    return os.getpid(), os.environ.get(VISIBLE)


def harm():
    """Leave the process as a failed capture of a CUDA graph does."""
    accidents.harmed = True
    return os.getpid()


@pytest.mark.usefixtures("importable")
def test_a_worker_sees_its_device_and_ends_when_it_is_harmed():
    with Worker(device="MIG-b") as worker:
        first, device = worker.call(shown)
        assert device == "MIG-b"
        assert worker.call(harm) == first
        second, device = worker.call(shown)
        assert second != first
        assert device == "MIG-b"


def test_processes_take_devices_in_turn():
    """In the order of planning; runs whose config numbers a device see all."""
    arranged = Arranged([], SETTINGS, True, [], devices=["MIG-b", "MIG-a"])
    assert [arranged.device_of(process) for process in range(3)] == ["MIG-b", "MIG-a", "MIG-b"]
    assert Arranged([], SETTINGS, True, []).device_of(1) is None
    found = [
        packing.are_numbered({"trainer": {"devices": wanted}}) for wanted in (1, "auto", [1], "1,")
    ]
    assert found == [False, False, True, True]


def test_the_folder_of_the_first_request_may_be_deleted(tmp_path):
    """The server is still loading its libraries when the folder goes, as in a short script."""
    program = """
import os, pathlib
from actlab.engines.workers import Worker
for name in ("gone", "here"):
    pathlib.Path(name).mkdir()
top = pathlib.Path.cwd()
os.chdir("gone")
with Worker() as worker:
    os.chdir(top / "here")
    (top / "gone").rmdir()
    print(worker.call("os:getcwd"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )

    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'here'}\n"), done.stderr
