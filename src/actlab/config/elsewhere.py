"""Files that a config names by their paths on another machine: where they are on this one.

A node of a cluster trains runs of the machine that planned them. A file may have another path on the node, but
configs, run folders and checkpoints must hold the path and the digest that the run was planned with. They
are therefore translated when objects are built from them (`here`), and back when recorded (`original`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from actlab.config.keys import mapped

_places: dict[str, str] = {}  # text of a config → text that names the same content on this machine
_digests: dict[str, str] = {}  # text of a config → digest with which its run was planned


@contextmanager
def using(places: Mapping[str, str], digests: Mapping[str, str]) -> Iterator[None]:
    """Translate configs within the block; without such a block nothing is translated.

    Args:
        places: texts of configs that name files, and the texts by which this machine finds the same files.
        digests: texts of configs, and digests as in `actlab.studies.plan.Run.sources`.
    """
    _places.update({text: place for text, place in places.items() if place != text})
    _digests.update(digests)
    try:
        yield
    finally:
        _places.clear()
        _digests.clear()


def here(config: Any) -> Any:
    """Return a config with the places of its files on this machine; unchanged outside `using`."""
    return mapped(config, partial(_translated, _places)) if _places else config


def original(config: Any) -> Any:
    """Return the argument of `here`; unchanged outside `using`."""
    back = {place: text for text, place in _places.items() if place not in _digests}
    return mapped(config, partial(_translated, back)) if back else config


def digest_of(text: str) -> str | None:
    """Return the digest with which a run was planned; None for any other text."""
    return _digests.get(text)


def _translated(places: Mapping[str, str], value: Any) -> Any:
    return places.get(value, value) if isinstance(value, str) else value
