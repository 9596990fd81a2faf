"""A hub that cannot be reached: one line, at once, without many retries; revisions in its cache."""

import shutil
import socket
import threading
from contextlib import closing, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import datasets
import pytest
import torch
from huggingface_hub import constants

from actlab.datamodules import ImageDataModule, hub, images
from actlab.errors import ActlabError
from hub_folders import labels_of


@contextmanager
def served(status):
    """The URL of a server on loopback that answers each request with a status, and its requests."""
    requests = []

    class Handler(SimpleHTTPRequestHandler):
        def send_head(self):
            requests.append(self.path)
            self.send_error(status)

        def log_message(self, *words): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


@pytest.fixture
def online(monkeypatch):
    """The libraries as they are where nobody has switched them off."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "PATIENCE", 0.3)
    hub.answers.cache_clear()
    yield lambda url: monkeypatch.setattr(constants, "ENDPOINT", url)
    hub.answers.cache_clear()


@pytest.mark.parametrize("listens", [True, False], ids=["silent", "refusing"])
@pytest.mark.timeout(60)
def test_an_unreachable_hub_is_one_line(cli, online, listens, caplog):
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()  # the kernel takes the connection, and nobody answers
        online(url := f"http://127.0.0.1:{server.getsockname()[1]}")
        code, out, err = cli(
            "fit", "-c", "mnist_classifier", "--data.dataset", "nobody/of-this-name"
        )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{url} does not answer within 0.3 s" in err
    assert {record.name for record in caplog.records} <= {"lightning_fabric.utilities.seed"}
    assert datasets.config.HF_HUB_OFFLINE is constants.HF_HUB_OFFLINE is False


def test_a_hub_that_answers_is_asked_once(online, monkeypatch):
    monkeypatch.setattr(hub, "PATIENCE", 10.0)
    with served(404) as (url, requests):
        assert hub.answers(url)
        assert hub.answers(url)
        assert len(requests) == 1


OLD, NEW, ELSEWHERE = "a" * 40, "b" * 40, "c" * 40


@pytest.fixture
def cached(hub_folder, monkeypatch, tmp_path):
    """The cache of the hub's library with two commits, whose labels differ; tag v1 is older."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place = tmp_path / "hub" / "datasets--someone--digits"
    changes = [lambda files, labels: None, lambda files, labels: labels.reverse()]
    for commit, change in zip((OLD, NEW), changes, strict=True):
        shutil.copytree(hub_folder(change=change), place / "snapshots" / commit)
    references = {"main": NEW, "v1": OLD, "refs/pr/1": NEW, "v0": ELSEWHERE}
    for name, commit in references.items():
        file = place / "refs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(commit)
    options: dict[str, Any] = {
        "channels": 1,
        "test_split": None,
        "cache_dir": str(tmp_path / "cache"),
    }
    return lambda revision: ImageDataModule("someone/digits", revision=revision, **options).images


@pytest.mark.parametrize(
    ("revision", "commit"),
    [(None, NEW), ("main", NEW), ("v1", OLD), ("refs/pr/1", NEW), (OLD, OLD), (NEW, NEW)],
    ids=["none", "branch", "tag", "reference", "older commit", "newer commit"],
)
def test_a_pinned_revision_is_read_from_the_cache(cached, revision, commit):
    found = cached(revision)
    assert found.revision == commit
    assert (
        found.tensors["train_labels"].tolist() == labels_of("train")[:: 1 if commit == OLD else -1]
    )


def test_a_commit_is_decoded_once(cached, monkeypatch):
    first = cached("v1")
    monkeypatch.setattr(images, "decode", None)
    second = cached(OLD)
    assert torch.equal(second.tensors["train_images"], first.tensors["train_images"])


@pytest.mark.parametrize(
    "revision",
    ["v2", "v0", ELSEWHERE, "../refs", ""],
    ids=["unknown tag", "tag of another commit", "another commit", "folder", "empty"],
)
def test_a_revision_that_is_not_cached_is_rejected(cached, revision):
    with pytest.raises(ActlabError, match=f"digits' at revision {revision!r} \\("):
        cached(revision)


def test_a_failed_request_does_not_replace_the_revision(cached, online):
    """The hub answers, but not to this request."""
    with served(403) as (url, _):
        online(url)
        assert cached("v1").revision == OLD
        with pytest.raises(
            ActlabError, match=r"dataset of the Hugging Face Hub, got .* at revision 'v2' \("
        ):
            cached("v2")
        assert cached(None).revision == NEW
