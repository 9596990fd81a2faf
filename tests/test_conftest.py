"""The guards around the tests do guard."""

import os
import random
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import torch

# Reserved for documentation (RFC 5737): nobody answers even where there is a network
ADDRESS = "192.0.2.1"


def test_addresses_are_refused():
    with socket.socket() as sock, pytest.raises(RuntimeError, match=f"no network.*{ADDRESS}"):
        sock.connect((ADDRESS, 80))
    with socket.socket() as sock, pytest.raises(RuntimeError, match="no network"):
        sock.connect_ex((ADDRESS, 80))


def test_names_are_refused():
    with pytest.raises(RuntimeError, match=r"no network.*example\.org"):
        socket.getaddrinfo("example.org", 443)
    with pytest.raises(RuntimeError, match="no network"):
        urllib.request.urlopen("https://example.org")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost"])
def test_loopback_is_open(host):
    with socket.create_server((host, 0)) as server:
        socket.create_connection((host, server.getsockname()[1]), timeout=5).close()


def test_children_inherit_the_offline_environment():
    names = ["HF_HUB_OFFLINE", "WANDB_MODE", "MPLBACKEND", "ACTLAB_CACHE", "HF_HOME", "WANDB_DIR"]
    code = f"import os; print(*[os.environ[n] for n in {names}])"
    words = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert words[:3] == ["1", "offline", "Agg"]
    assert all("actlab-tests-" in word for word in words[3:])


@pytest.mark.parametrize("_again", [0, 1])
def test_every_test_draws_the_same(_again):
    assert "PL_GLOBAL_SEED" not in os.environ
    drawn = (random.random(), np.random.rand(), torch.rand(1).item())
    assert drawn == (
        0.8444218515250481,
        0.5488135039273248,
        torch.rand(1, generator=fresh()).item(),
    )


def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(0)
