"""Downloads: from a server on this computer, checked, and kept where they are right."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from actlab.datamodules import downloads
from actlab.datamodules.downloads import Remote, download, git_name
from actlab.datamodules.tweets import read_tweets
from text_files import Copies, file_of, refusal


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a server on this computer that gives what lies in ``tmp_path / "served"``."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: Any) -> None: ...

    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_files_come_over_the_network_with_progress(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(downloads, "RETRIES", 0)
    file_of(tmp_path / "served", "a\tN\n", "tweets")
    sha256 = hashlib.sha256(b"a\tN\n").hexdigest()
    (path,) = download({"new": Remote(f"{server}/tweets", sha256)}, tmp_path)
    assert read_tweets(path) == [(["a"], [0])]
    assert "100%" in capfd.readouterr().err
    message = refusal(download, {"lost": Remote(f"{server}/nothing", sha256)}, tmp_path)
    assert "404" in message
    assert not (tmp_path / "lost").exists()


def test_a_file_by_the_name_git_gives_it(tmp_path: Path) -> None:
    path = file_of(tmp_path, "hello\n")
    assert git_name(path) == "ce013625030ba8dba906f756967f9e9ca394464a"  # as `git hash-object` prints it
    remote = {
        "copy": Remote("https://example.org/file.txt", is_right=lambda path: git_name(path)[:4] == "ce01")
    }
    assert download(remote, tmp_path, Copies(tmp_path)) == [tmp_path / "copy"]
    (tmp_path / "copy").write_text("changed")
    download(remote, tmp_path, Copies(tmp_path))
    assert (tmp_path / "copy").read_text() == "hello\n"
