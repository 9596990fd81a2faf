"""The W&B logger: offline without an account, one run a logger, nothing said on the network."""

import socket

from actlab.reports.wandb import RunLogger, mode
from wandb_logs import history


def test_a_key_or_a_netrc_entry_is_an_account(tmp_path, monkeypatch):
    """The environment wins over the account, the argument over both."""
    for key in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(key, raising=False)
    nobody = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(nobody))
    assert mode() == "offline"
    nobody.write_text("machine api.wandb.ai\n  login user\n  password 0\n")
    assert mode() == "online"
    nobody.write_text("machine example.org\n  login user\n  password 0\n")
    assert mode() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert mode() == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert mode() == "disabled"
    assert mode(offline=True) == "offline"
    assert mode(offline=False) == "online"


def test_two_loggers_in_one_process_keep_their_histories_apart(tmp_path, monkeypatch, capfd):
    reached: list[object] = []
    connect = socket.socket.connect

    def watch(self: socket.socket, address: object) -> None:
        reached.append(address)
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", watch)
    loggers = [
        RunLogger(name=f"member{i}", save_dir=str(tmp_path / str(i)), offline=True)
        for i in range(2)
    ]
    for i, logger in enumerate(loggers):
        logger.log_hyperparams(
            {"model": {"init_args": {"activation": {"name": "elu", "alpha": i}}}}
        )
    for step in (10, 20):
        for i, logger in enumerate(loggers):
            logger.log_metrics({"val/loss": 100.0 * i + step}, step)
    assert loggers[0].experiment is not loggers[1].experiment
    assert loggers[1].experiment.config["model"] == {
        "init_args": {"activation": {"name": "elu", "alpha": 1}}
    }
    for logger in loggers:
        logger.finalize("success")
    for i in range(2):
        rows = [(row["trainer/global_step"], row["val/loss"]) for row in history(tmp_path / str(i))]
        assert rows == [(10, 100 * i + 10), (20, 100 * i + 20)]
    hosts = {a[0] if isinstance(a, tuple) else "file" for a in reached}
    assert hosts <= {"127.0.0.1", "::1", "localhost", "file"}
    assert capfd.readouterr().out == ""
