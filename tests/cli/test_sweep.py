"""The sweep of the documentation: the command that W&B's agent builds, executed offline."""

import re
from multiprocessing import forkserver
from pathlib import Path

import pytest
import wandb
import yaml

import wandb_logs

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "logging.md"
SETTING = {"model.activation.alpha": 0.25, "model.optimizer.lr": 0.003}


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """Return the words that an agent without a server runs for a setting, in its environment."""
    # Here, not in every process that collects tests: it takes seconds.
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args
    from wandb.sdk.lib.config_util import save_config_file_from_dict

    def words(sweep, setting):
        order = {
            "program": sweep["program"],
            "args": {key: {"value": value} for key, value in setting.items()},
        }
        known = {**create_sweep_command_args(order), "env": [], "program": [order["program"]]}
        save_config_file_from_dict(tmp_path / "config.yaml", order["args"])
        monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
        monkeypatch.setenv("WANDB_RUN_ID", "proposed1")
        monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(tmp_path / "config.yaml"))
        wandb.teardown()  # else it keeps the environment of an earlier test
        parts = create_sweep_command(sweep["command"])
        return [
            word
            for part in parts
            for word in (known[part[2:-1]] if part.startswith("${") else [part])
        ]

    yield words
    monkeypatch.undo()
    wandb.teardown()
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it keeps the address of W&B's service


# Imports W&B's launcher and stops the server of workers; test_wandb_fit.py sets variables
@pytest.mark.slow
# wandb leaves the file of the sweep's parameters to the garbage collector
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_each_run_of_the_documented_sweep_is_a_fit_that_logs_to_it(agent, succeed, tmp_path):
    (text,) = re.findall(
        r"^```yaml\n(# sweep\.yaml\n.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    sweep = yaml.safe_load(text)
    assert sweep["parameters"].keys() == SETTING.keys()
    program, *words = agent(sweep, SETTING)
    assert program == "actlab"
    succeed(
        *words,
        "--trainer.max_epochs=1",
        "--trainer.limit_train_batches=2",
        "--model.network.hidden=[8]",
    )
    (log,) = tmp_path.rglob("*.wandb")
    run = wandb_logs.header(log)
    assert (run.run_id, run.sweep_id) == ("proposed1", "sweep1")
    config = wandb_logs.config(log)
    assert {key: config[key] for key in SETTING} == SETTING
    assert (config["activation"], config["lr"]) == ("elu(alpha=0.25)", 0.003)
    assert sweep["metric"] == {"name": "val/loss", "goal": "minimize"}
    assert any("val/loss" in step for step in wandb_logs.history(tmp_path))
