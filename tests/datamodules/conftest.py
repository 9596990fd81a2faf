"""A fixture for tiny datasets in the hub's layout."""

from functools import partial
from pathlib import Path

import pytest

from hub_folders import HubFolder, write_hub_folder


@pytest.fixture
def cache(tmp_path: Path) -> str:
    """The cache folder of this test."""
    return str(tmp_path / "cache")


@pytest.fixture
def hub_folder(tmp_path: Path) -> HubFolder:
    """`write_hub_folder` below this test's own folder."""
    return partial(write_hub_folder, tmp_path)
