"""Downloads: from a server on this computer, checked, and kept where they are right."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from actlab.datamodules import twitter_pos
from actlab.datamodules.tweets import read_tweets
from actlab.datamodules.twitter_pos import fetch
from text_files import file_of, refusal


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a server on this computer that gives what lies in ``tmp_path / "served"``."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: Any) -> None: ...

    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))
    ) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_files_come_over_the_network_with_progress(server, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(twitter_pos, "RETRIES", 0)
    file_of(tmp_path / "served", "a\tN\n", "tweets")
    sha256 = hashlib.sha256(b"a\tN\n").hexdigest()
    monkeypatch.setattr(twitter_pos, "FILES", {"new": (f"{server}/tweets", sha256)})
    (path,) = fetch(tmp_path)
    assert read_tweets(path) == [(["a"], [0])]
    assert "100%" in capfd.readouterr().err
    monkeypatch.setattr(twitter_pos, "FILES", {"lost": (f"{server}/nothing", sha256)})
    assert "404" in refusal(fetch, tmp_path)
    assert not (tmp_path / "lost").exists()
