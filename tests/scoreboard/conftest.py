"""A scoreboard of a test's own."""

import pytest
import yaml

from actlab.scoreboard import definition


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A function that makes a mapping the definition of the scoreboard."""
    file = tmp_path / "scoreboard.yaml"

    def stated(content):
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        monkeypatch.setattr(definition, "FILE", str(file))
        definition.load.cache_clear()

    yield stated
    definition.load.cache_clear()
