"""Grid points, which map grid keys to values: compared, and put in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from actlab.studies.keys import label


def in_full(value: Any) -> str:
    """A grid value with all that tells it from others: unlike `label`, with a unit's path and every digit.

    >>> in_full("./mine.py:relu"), in_full({"name": "elu", "alpha": 2.0}), in_full(1 / 3)
    ('./mine.py:relu', 'elu(alpha=2)', '0.3333333333333333')
    """
    if isinstance(value, Mapping) and "class_path" in value:
        return in_full({"name": value["class_path"], **(value.get("init_args") or {})})
    if isinstance(value, Mapping) and "name" in value:
        parameters = ", ".join(f"{k}={in_full(v)}" for k, v in value.items() if k != "name")
        return f"{value['name']}({parameters})" if parameters else str(value["name"])
    return label(value) if isinstance(value, float) and float(label(value)) == value else str(value)


def same(one: Any, other: Any) -> bool:
    """Whether two grid values are equal; a text also names the value that is written so in full.

    Units of files are equal when file and name are, however the path is written.

    >>> same("elu(alpha=2)", {"name": "elu", "alpha": 2}), same("0.50", 0.5), same("relu", "./mine.py:relu")
    (True, True, False)
    """
    one, other = _located(one), _located(other)
    if isinstance(one, str) == isinstance(other, str):
        return bool(one == other)
    text, value = (one, other) if isinstance(one, str) else (other, one)
    return text == in_full(value) or _is_number(text, value)


def _located(value: Any) -> Any:
    """A value with the paths of ``file.py:Unit`` made absolute, as the command line makes them."""
    if isinstance(value, Mapping):
        return {key: _located(item) for key, item in value.items()}
    file, colon, unit = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return f"{Path(file).expanduser().resolve()}{colon}{unit}" if file.endswith(".py") else value


def _is_number(text: str, value: Any) -> bool:
    try:
        return isinstance(value, int | float) and float(text) == value
    except ValueError:
        return False


def matches(where: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a point has all values of ``where``, as `same` compares them.

    >>> point = {"model.activation": {"name": "elu", "alpha": 2}, "model.lr": 0.1}
    >>> matches({"model.activation": "elu(alpha=2)"}, point), matches({"model.lr": 0.2}, point)
    (True, False)
    """
    return all(key in point and same(point[key], value) for key, value in where.items())


def printer(values: Iterable[Any]) -> Callable[[Any], str]:
    """A function that writes grid values for people: by label, in full where two values have the same one.

    >>> text = printer(["relu", "./mine.py:relu", "./mine.py:bent"])
    >>> [text("relu"), text("./mine.py:relu"), text("./mine.py:bent")]
    ['relu', './mine.py:relu', 'bent']
    """
    by_label: dict[str, set[str]] = {}
    for value in values:
        by_label.setdefault(label(value), set()).add(in_full(value))
    return lambda value: in_full(value) if len(by_label.get(label(value), ())) > 1 else label(value)


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key with the shortest ending that no other key has.

    >>> short_names(["model.lr", "model.network.dropout", "data.dropout"])
    {'model.lr': 'lr', 'model.network.dropout': 'network.dropout', 'data.dropout': 'data.dropout'}
    """
    listed = list(dict.fromkeys(keys))
    return {key: next(end for end in _endings(key) if _is_own(end, key, listed)) for key in listed}


def _endings(key: str) -> list[str]:
    """``a.b.c`` → ``c``, ``b.c``, ``a.b.c``."""
    parts = key.split(".")
    return [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]


def _is_own(ending: str, key: str, keys: Iterable[str]) -> bool:
    return ending == key or not any(f".{other}".endswith(f".{ending}") for other in keys if other != key)


def in_words(point: Mapping[str, Any], compare: str = "") -> str:
    """A point for people; the value of the compared key stands without the key.

    >>> in_words({"model.activation": "relu", "model.dropout": 0.5}, compare="model.activation")
    'relu, dropout 0.5'
    """
    names = short_names(point)
    return ", ".join(label(v) if k == compare else f"{names[k]} {label(v)}" for k, v in point.items())
