"""A hub that cannot be reached: one line, at once, without hundreds of retries."""

import socket
import threading
from contextlib import closing

import datasets
import pytest
from huggingface_hub import constants

from actlab.datamodules import hub


class Server:
    """A server on loopback that takes connections and gives an answer, or none."""

    def __init__(self, answer=b"", listens=True):
        self.socket, self.answer, self.connections = socket.socket(), answer, []
        self.socket.bind(("127.0.0.1", 0))
        if listens:
            self.socket.listen(50)
            threading.Thread(target=self.serve, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            if self.answer:
                connection.recv(10_000)
                connection.sendall(self.answer)

    def close(self):
        for connection in self.connections:
            connection.close()
        self.socket.close()


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
    with closing(Server(listens=listens)) as server:
        online(server.url)
        code, out, err = cli("data", "check", "mnist", "nobody/of-this-name")
        assert len(server.connections) <= 1
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{server.url} does not answer within 0.3 s" in err
    assert not caplog.records
    assert datasets.config.HF_HUB_OFFLINE is constants.HF_HUB_OFFLINE is False


def test_a_hub_that_answers_is_asked_once(online, monkeypatch):
    monkeypatch.setattr(hub, "PATIENCE", 10.0)
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with closing(Server(answer)) as server:
        assert hub.answers(server.url)
        assert hub.answers(server.url)
        assert len(server.connections) == 1
