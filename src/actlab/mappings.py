"""YAML files as nested values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from actlab.errors import ActlabError


class _Loader(yaml.SafeLoader):
    """YAML that refuses a mapping with a key twice, of which PyYAML would keep the last silently."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read one mapping.

        Raises:
            ActlabError: where a key of it has stood before.
        """
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ActlabError(
                    f"{self.name}, line {key.start_mark.line + 1}: a second {key.value!r}; keep one"
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return node


def read_mapping(path: Path) -> dict[str, Any]:
    """The nested values of a YAML file.

    Raises:
        ActlabError: when the file is not YAML, holds no mapping, or one of its mappings has a key twice.
    """
    try:
        with path.open(encoding="utf-8") as file:
            values = yaml.load(file, _Loader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ActlabError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ActlabError(f"{path} holds no mapping of keys to values")
    return dict(values)
