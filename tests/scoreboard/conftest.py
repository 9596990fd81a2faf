"""A scoreboard of a test's own."""

import pytest
import yaml

from actlab.scoreboard import definition


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A function that makes a mapping the definition of a version of the scoreboard."""

    def stated(content, version=1):
        file = tmp_path / f"scoreboard_{version}.yaml"
        content = {**content, "version": version}
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        monkeypatch.setitem(definition.FILES, version, str(file))
        definition.load.cache_clear()

    yield stated
    definition.load.cache_clear()
