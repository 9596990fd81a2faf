"""Every config trains and every study runs to its table and figures, on the bundled samples.

`.ci/smoke` runs all, by ``pytest -m smoke``; studies that differ in kind are part of the default
suite.
"""

import os
import subprocess
import sys

import pytest

from actlab.config.signatures import locate, parameters
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file, names_in, resource
from actlab.studies import reading

CONFIGS = [config_file(name) for name in names_in("configs")]
STUDIES = sorted(resource("configs/studies").glob("*.yaml"))
# Of a datamodule that has them
SHORT = {
    "sample": "true",
    "batch_size": 2,
    "eval_batch_size": 2,
    "workers": 0,
}
LIMITS = [
    f"--trainer.limit_{split}_batches={n}" for split, n in (("train", 2), ("val", 1), ("test", 1))
]
# Of the kinds: a probe of layers, stages, photographs, speech. Other tests run curves
# (test_api.py), a probe of inputs (studies/test_stages.py) and bytes (cli/test_cli.py).
KINDS = ["claim_net_inputs", "claim_sparse_inputs", "elu_imagenet", "soi_timit"]
BRIEF = ("seeds=1", "model.optimizer.lr=1e-3", "trainer.limit_train_batches=2")


def test_there_are_configs_and_studies_of_each_kind():
    assert len(CONFIGS) > 10
    assert {*KINDS} < {path.stem for path in STUDIES}


@pytest.mark.smoke
@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_config_trains_and_its_checkpoint_is_tested(path, cli, tmp_path):
    """Two updates of the network as it is."""
    has = parameters(locate(read_mapping(path)["data"]["class_path"]))
    words = [f"--data.{name}={value}" for name, value in SHORT.items() if name in has]
    cli(
        "fit",
        "-c",
        path,
        *words,
        *LIMITS,
        "--trainer.max_epochs=1",
        "--trainer.default_root_dir",
        tmp_path,
    ).succeeded()
    (checkpoint,) = tmp_path.rglob("last.ckpt")
    assert "activation:" in (checkpoint.parents[1] / "config.yaml").read_text()
    assert "test/" in cli("test", "--ckpt_path", checkpoint, "--trainer.logger=false").succeeded()


def assert_complete(path, root, said, **options):
    """Every run of a study has ended well and as planned; its table and its figures exist."""
    assert not [
        fault for fault in ("in a stack", "a trial of", "no checkpoint has") if fault in said
    ]
    assert len(list(root.glob("*/result.json"))) >= len(
        reading.load(path, smoke=True, **options).runs()
    )
    assert not list(root.glob("*/failed.json"))
    assert (root / "table.md").stat().st_size
    assert len(list((root / "figures").glob("*.png"))) >= len(reading.load(path).figures)


@pytest.mark.tries_stacks
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", KINDS)
def test_a_study_of_each_kind_runs_with_one_seed_at_one_rate(name, cli, tmp_path):
    path = resource("configs/studies") / f"{name}.yaml"
    words = [word for change in BRIEF for word in ("--set", change)]
    out = cli(
        "study", "run", path, "--smoke", "--report", *words, "--runs-dir", tmp_path
    ).succeeded()
    assert_complete(path, tmp_path / f"{name}-smoke", out, overrides=BRIEF)


@pytest.mark.smoke
@pytest.mark.tries_stacks
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_a_study_runs_in_its_whole_smoke_form(path, cli, tmp_path):
    """With a worker: one for each of two studies that run at a time."""
    outcome = cli(
        "study", "run", path, "--smoke", "--report", "--jobs", "1", "--runs-dir", tmp_path
    )
    assert outcome.code == 0, outcome.out + outcome.err
    assert "Traceback" not in outcome.err
    assert_complete(path, tmp_path / f"{path.stem}-smoke", outcome.out)


@pytest.mark.smoke
def test_a_study_runs_as_a_user_starts_it(tmp_path):
    """In a process of its own, with warnings."""
    words = ["study", "run", "demo", "--smoke", "--report", "--runs-dir", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "actlab", *map(str, words)],
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert_complete(resource("configs/studies/demo.yaml"), tmp_path / "demo-smoke", done.stdout)
