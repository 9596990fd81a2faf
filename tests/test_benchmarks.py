"""The benchmarks use actlab as it is: what they name exists. `make bench` runs them."""

import argparse
import ast
import importlib
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import actlab
from actlab.scoreboard.selections import Trials
from actlab.tasks import graphs

ORDINARY = (
    "normal",
    "unequal spread",
    "skewed",
    "errors of 1,000",
    "errors of 10,000",
    "kept runs",
)
BENCHMARKS = sorted((Path(__file__).parent.parent / "benchmarks").glob("*.py"))


def test_there_are_benchmarks():
    assert len(BENCHMARKS) > 5


@pytest.mark.parametrize("path", BENCHMARKS, ids=[path.stem for path in BENCHMARKS])
def test_what_a_benchmark_names_exists(path):
    tree = ast.parse(path.read_text())
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("actlab"):
            for name in node.names:
                found[name.asname or name.name] = attribute(
                    importlib.import_module(node.module), name.name
                )
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in found
        ):
            attribute(found[node.value.id], node.attr)


def test_stacks_have_as_many_runs_as_are_asked_for(monkeypatch, tmp_path):
    """Also since their study has stages, the last of which takes ``seeds``."""
    monkeypatch.syspath_prepend(str(BENCHMARKS[0].parent))
    sides, stacks = importlib.import_module("sides"), importlib.import_module("stacks")
    plain = stacks.grid(None, "seeds=30", "model.network.dropout=0.0")
    assert [len(stacks.members(plain, size)) for size in (1, 15, 90)] == [1, 15, 90]
    for size in (1, 15, 90):
        study = actlab.load_study("gelu_mnist_classifier", settings=sides.settings(tmp_path, size))
        assert len(study.runs()) == size


@pytest.mark.parametrize(("blocks", "warm_up"), [(1, 5), (25, 26)])
def test_the_clock_of_the_benchmarks_leaves_updates_in_blocks(monkeypatch, blocks, warm_up):
    monkeypatch.syspath_prepend(str(BENCHMARKS[0].parent))
    monkeypatch.setattr("actlab.tasks.blocks.LONGEST", 1e9)
    stacks, timing = importlib.import_module("stacks"), importlib.import_module("timing")
    clock = timing.Clock(blocks)
    taken = stacks.in_stack(stacks.without_dropout(None, 1, "trainer.max_steps=30"), clock)
    assert (clock.begin[0], clock.end[0]) == (warm_up, 30)
    assert taken > 0


PARTS = {
    "tests": {"passed", "failed", "skipped"},
    "mnist": {"jax", "runs_2"},
    "convnet": {"runs"},
    "resnet": {"runs"},
    "gpt": {"stacks", "differs", "chosen"},
    "blocks": {"jax", "runs_2", "convnet"},
    "correct": {"about", "rows"},
    "epochs": {"graphs", "no-graphs"},
}
FACTS = {"finished", "device", "torch", "cuda", "commit", "dtype", "date"}


@pytest.mark.parametrize(
    ("words", "device", "reason"),
    [
        ([], "cpu", "torch finds no CUDA device: give --smoke"),
        (
            ["cifar"],
            "cuda",
            (
                "'cifar' is no part: give some of tests, mnist, convnet, resnet, gpt, "
                "blocks, correct, epochs"
            ),
        ),
        (["--cifar10", "nowhere"], "cuda", "--cifar10 nowhere: no such folder"),
        (["resnet"], "cuda", "resnet: give the folder of CIFAR-10 by --cifar10 FOLDER"),
        (["gpt", "--minutes=0"], "cuda", "gpt: not begun"),
    ],
)
def test_the_benchmark_of_a_gpu_says_what_it_lacks(
    monkeypatch, tmp_path, capsys, words, device, reason
):
    monkeypatch.syspath_prepend(str(BENCHMARKS[0].parent))
    gpu = importlib.import_module("gpu")
    monkeypatch.setattr(gpu, "DEVICE", device)
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words, f"--out={tmp_path}"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert reason in f"{ended.value}{capsys.readouterr().err}"
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_in_its_small_form(tmp_path):
    def called(*words):
        program = next(path for path in BENCHMARKS if path.stem == "gpu")
        options = ["--smoke", "--jobs=0", "--minutes=60", f"--out={tmp_path}", *words]
        done = subprocess.run(
            [sys.executable, program, *options], check=False, capture_output=True, text=True
        )
        record = tmp_path / "gpu-smoke.json"
        return done, json.loads(record.read_text()) if record.exists() else {}

    interrupted, record = called("tests", "--minutes=0.001")
    assert interrupted.stderr == "not finished; the same command resumes\ntests: time is over\n"
    assert not record.get("tests", {}).get("finished")
    done, first = called()
    assert done.returncode == 0, done.stderr
    assert {name: entry.keys() - FACTS for name, entry in first.items()} == PARTS
    assert all(entry["finished"] and entry.keys() >= FACTS for entry in first.values())
    assert first["tests"]["failed"] == 0
    assert [row["runs"] for row in first["gpt"]["stacks"]] == [1, 2]
    again, second = called()
    assert second == first
    assert again.stdout.count("finished earlier") == len(PARTS)

    del second["gpt"]["chosen"]
    for name in ("convnet", "gpt"):
        second[name]["finished"] = False
    (tmp_path / "gpu-smoke.json").write_text(json.dumps(second))
    next(tmp_path.glob("runs/cifar10_convnet-smoke/*/result.json")).unlink()
    resumed, third = called("convnet", "gpt")
    assert "6 runs, 5 finished, 1 to run" in resumed.stdout
    assert third["gpt"]["stacks"] == first["gpt"]["stacks"]
    assert third["gpt"].keys() == first["gpt"].keys()
    assert [run["run"] for run in third["convnet"]["runs"]] == [
        run["run"] for run in first["convnet"]["runs"]
    ]


@pytest.fixture
def gpu(monkeypatch):
    """The module of the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS[0].parent))
    return importlib.import_module("gpu")


def test_graphs_become_the_default_by_the_file_of_the_benchmark(gpu, tmp_path, monkeypatch, capsys):
    """On a device with a name of its own the part is measured in two calls; its file is copied."""
    trained: list[str] = []
    shown = tmp_path / "benchmarks"
    shown.mkdir()
    monkeypatch.setattr(gpu, "name_of", lambda device: "NVIDIA H300")
    monkeypatch.setattr(gpu.os, "setsid", lambda: None)
    monkeypatch.setattr(gpu.torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr("actlab.tasks.graphs.resource", lambda name: shown)

    def row_of(case, updates):
        if len(trained) == 20:
            raise KeyboardInterrupt
        trained.append(case.name)
        return {"case": case.name, "runs": case.runs, "verdict": "bits", "distance": "0.0e+00"}

    def are_shown():
        graphs.are_shown.cache_clear()
        shutil.copy(tmp_path / "gpu.json", shown / "gpu_h300.json")
        return graphs.are_shown("NVIDIA H300")

    monkeypatch.setattr(gpu.graphs, "row_of", row_of)
    options = argparse.Namespace(out=tmp_path, smoke=False)
    with pytest.raises(KeyboardInterrupt):
        gpu.measure("correct", options)
    assert not are_shown()
    trained.append("the 21st, which was cut off")
    gpu.measure("correct", options)
    del trained[20]
    assert trained == [case.name for case in gpu.graphs.CASES]
    assert are_shown()
    graphs.are_shown.cache_clear()


def test_the_benchmark_of_graphs_has_enough_cases(gpu):
    assert len(gpu.graphs.CASES) >= graphs.CASES
    assert len({case.name for case in gpu.graphs.CASES}) == len(gpu.graphs.CASES)


@pytest.mark.parametrize(
    ("again", "replayed", "loss", "number", "verdict"),
    [
        (1.0, 1.0, 2.0, 3, "bits"),
        (1.0, 1.0, 2.1, 3, "differs"),
        (1.001, 1.005, 2.0, 3, "noise"),
        (1.001, 1.02, 2.0, 3, "differs"),
        (1.0, 1.001, 2.0, 3, "differs"),
        (1.0, float("nan"), 2.0, 3, "differs"),
        (float("nan"), 1.02, 2.0, 3, "differs"),
        (1.0, 1.0, 2.0, 0, "eager"),
    ],
)
def test_the_verdict_on_graphs(gpu, again, replayed, loss, number, verdict):
    def trained(weight, loss=2.0, number=0):
        return gpu.graphs.Trained(torch.tensor([weight]), torch.tensor([loss]), 50, number, "")

    assert (
        gpu.graphs.verdict_of(trained(1.0), trained(again), trained(replayed, loss, number))
        == verdict
    )


def test_a_case_with_and_without_graphs(gpu):
    """Traced, on a CPU."""
    assert gpu.graphs.row_of(gpu.graphs.CASES[0], 8) == {
        **{
            "case": "classifier",
            "runs": 1,
            "verdict": "bits",
            "updates": 8,
            "replayed": 1,
            "reason": "",
        },
        **{"distance": "0.0e+00", "noise": "0.0e+00"},
    }


def attribute(owner, name):
    """A name of a module, which may be a module in it; of anything else it may be set later."""
    if hasattr(owner, "__path__") and not hasattr(owner, name):
        return importlib.import_module(f"{owner.__name__}.{name}")
    return getattr(owner, name) if hasattr(owner, "__file__") else getattr(owner, name, None)


def test_the_page_has_the_simulated_verdicts():
    root = Path(__file__).parent.parent
    simulated = json.loads((root / "benchmarks/verdicts.json").read_text())
    tables = runpy.run_path(str(root / "benchmarks/verdicts.py"))["tables"]
    page = (root / "docs/concepts/verdicts.md").read_text()
    assert tables(simulated) in page, "run: python benchmarks/verdicts.py, and paste its tables"
    ordinary = [name for name in simulated if name.partition(":")[0] in ORDINARY]
    assert len(ordinary) == 6 * 4
    assert (
        max(simulated[name][test] for name in ordinary for test in ("mean", "probability")) <= 0.065
    )
    # At the margin, on the worse side
    margins = {name: cell for name, cell in simulated.items() if name.startswith("margin")}
    assert len(margins) == 8 * 4
    shares: dict[str, list[tuple[float, float]]] = {}
    for name, cell in margins.items():
        shape, _, pairs = name.removeprefix("margin ").partition(":")
        assert cell["at margin"] <= (0.1 if shape == "contaminated" else 0.06), name
        if pairs != "6" or shape != "contaminated":
            shares.setdefault(shape, []).append((cell["at margin"], cell["tests"]))
    prose = " ".join(page.split())
    equivalent, tests = zip(*shares["skewed, unequal"], strict=True)
    assert f"alone find {100 * min(tests):.1f} to {100 * max(tests):.1f} %." in prose
    assert f"inside the margin, it is at most {100 * max(equivalent):.1f} %." in prose
    equivalent, tests = zip(*shares["contaminated"], strict=True)
    assert (
        f"it is {100 * min(equivalent):.1f} to {100 * max(equivalent):.1f} % instead of "
        f"{100 * min(tests):.1f} to {100 * max(tests):.1f} %."
    ) in prose
    power = [100 * simulated[f"difference 0.0:{pairs}"]["equivalent"] for pairs in (15, 30)]
    assert f"in {power[0]:.1f} % of the studies, with 30 pairs in {power[1]:.1f} %" in prose

    intervals = ("covers", "covers probability")
    assert min(simulated[name][interval] for name in ordinary for interval in intervals) >= 0.93


@pytest.fixture
def over_tasks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS[0].parent))
    return importlib.import_module("over_tasks")


def test_coverage_of_a_simulated_selection(over_tasks):
    """Two settings whose errors differ: one always selected, or each as often as the other."""
    rng = np.random.default_rng(0)
    noise = 0.01 * np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])

    def shares(distance):
        scores, errors = np.array([[0.0], [distance]]), np.array([[0.0], [0.1]])
        trials = Trials(scores + noise, errors + noise, "min")
        sides = {}
        for label in ("gelu", "relu"):
            sides[label] = over_tasks.simulated(trials, [15, 8], 300, rng)
        group = over_tasks.SimulatedGroup([sides])
        return over_tasks.protocol_coverage([over_tasks.SimulatedTask([group], False)])[0].T

    without, included = shares(distance=1.0)
    assert without.tolist() == included.tolist()
    assert without == pytest.approx([0.95] * 3, abs=0.04)
    without, included = shares(distance=0.0)
    assert (without < 0.6).all()
    assert (included > without + 0.2).all()


def test_the_simulated_protocol_has_the_tasks_of_the_scoreboard(over_tasks):
    tasks = over_tasks.simulated_tasks(3)
    labels = [task.labels() for task in tasks]
    comparisons = [[len(group.comparisons) for group in task.groups] for task in tasks]
    assert comparisons == [[2], [2], [1], [1], [1, 1], [1], [1], [1]]
    datasets = [sum(group.datasets for group in task.groups) for task in tasks]
    assert datasets == [2, 1, 7, 2, 6, 1, 2, 2]  # the two equations are points of one table
    assert labels[1] == {"mish", "relu_squared", "silu", "sine", "tanh"}  # the others fail
    assert labels[3] == {label for label in labels[0] if label != "relu_squared"}
    assert tasks[2].groups[0].comparisons[0]["sine"].noise[1].shape == (3, 8)
    shares = over_tasks.protocol_coverage(tasks)
    assert shares.shape == (9, 3, 2)
    assert np.isnan(shares[1, 1]).all()  # both equations select their own settings
    assert np.isfinite(shares[-1, 2]).all()
