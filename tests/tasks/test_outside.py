"""Generators and counters that Lightning's checkpoints lack: restored at a resume, or named."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed")

CONFIG = """\
model: {class_path: own_generators.Net}
data: {class_path: own_generators.Data}
trainer: {enable_progress_bar: false, enable_model_summary: false, logger: false}
"""


@pytest.fixture
def fit(cli, program, tmp_path, monkeypatch):
    """Fit for some epochs in a folder, resumed or not; return the output and the last weights."""
    program("own_generators")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fit.yaml").write_text(CONFIG)

    def fitted(folder, epochs, *words):
        root = ("--trainer.default_root_dir", folder, "--trainer.max_epochs", epochs)
        code, out, err = cli("fit", "-c", "fit.yaml", *root, *words)
        assert code == 0, err
        return out, next((tmp_path / folder).rglob(f"epoch={epochs - 1}-*.ckpt"))

    return fitted


def resumed(fit, *words):
    """Return what a resume printed, and the weights with and without a stop."""
    _, first = fit("stopped", 2, *words)
    out, last = fit("stopped", 3, *words, "--ckpt_path", first)
    _, straight = fit("straight", 3, *words)
    return out, [torch.load(path, weights_only=True)["state_dict"] for path in (last, straight)]


@pytest.mark.parametrize("kind", ["shuffle", "weighted", "local"])
def test_generators_of_loaders_go_on(fit, kind):
    out, (last, straight) = resumed(fit, "--data.kind", kind)
    assert all(torch.equal(last[name], straight[name]) for name in straight)
    assert "note: the checkpoint" not in out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--data.kind", "shuffle", "--model.counts", "true"], "model.total, model.steps"),
        (
            ["--data.kind", "numpy", "--trainer.reload_dataloaders_every_n_epochs", "1"],
            "data.noise, train_dataloader.sampler",
        ),
    ],
)
def test_what_cannot_be_restored_is_named(fit, words, names):
    out, _ = resumed(fit, *words)
    (line,) = (line for line in out.splitlines() if line.startswith("note: the checkpoint"))
    assert line.startswith(f"note: the checkpoint does not hold {names}: numbers may differ")
