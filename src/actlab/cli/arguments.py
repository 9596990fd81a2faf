"""Parse the arguments of ``actlab fit`` into a nested config; later files and options override earlier ones."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actlab.config.keys import OBJECT, SPEC, get_dotted, inside, with_import_paths
from actlab.config.places import SAMPLE, check_sample
from actlab.config.sections import FILES, MOVED, SECTIONS, sample_replaces_dataset, top_level
from actlab.config.signatures import takes_text
from actlab.errors import ActlabError, unknown
from actlab.storage.contents import texts
from actlab.storage.mappings import read_mapping, read_word
from actlab.storage.resources import config_file

_CONFIG = ("-c", "--config")
_HELP = ("-h", "--help")
_PRINT = "--print_config"


class Option(NamedTuple):
    """An option and its value; the value is None for options without value, such as ``--help``."""

    name: str
    value: str | None

    @property
    def asks_help(self) -> bool:
        """Whether the option prints help."""
        return self.name in _HELP or self.name.endswith(".help")

    @property
    def asks(self) -> bool:
        """Whether the option only prints something and nothing is run."""
        return self.asks_help or self.name == _PRINT


def options_of(words: Sequence[str]) -> list[Option]:
    """Parse command-line arguments into options; the value of ``--config`` becomes the path of the file.

    Raises:
        ActlabError: for an argument outside any option, an option without value or a missing config file.
    """
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not _opens_option(name):
            raise ActlabError(
                f"unexpected argument {word!r}: write -c FILE for a config and --key VALUE for a value"
            )
        option = Option(name, value if equals else None)
        if not equals and rest and not _opens_option(rest[0]) and name != _PRINT:
            option = Option(name, rest.pop(0))
        if option.value is None and not option.asks:
            raise ActlabError(f"{name} needs a value: write {name} VALUE")
        if name == _PRINT and option.value is not None:
            raise ActlabError(f"{_PRINT} {option.value}: the option takes no value; it prints the whole config")
        if name in _CONFIG:
            option = Option("--config", str(config_file(str(option.value), piped=True)))
        found.append(option)
    return found


def texts_of(options: Iterable[Option]) -> list[str]:
    """Return every text in the values of options, also in mappings and lists."""
    return [text for option in options for text in texts(_value(option.value, {}, option.name))]


def joined(options: Iterable[Option]) -> list[str]:
    """Return the options as command-line arguments, the inverse of `options_of`."""
    return [o.name if o.value is None else f"{o.name}={o.value}" for o in options]


def _opens_option(word: str) -> bool:
    """Return whether an argument starts an option; values such as ``-1`` or ``- a`` do not."""
    number = word[1:2].isdigit() or word[1:2] == "."
    return word.startswith("-") and len(word) > 1 and not number and " " not in word


def nested(options: Iterable[Option], command: str, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the config that options describe.

    Args:
        options: options in command-line order; later options override earlier ones.
        command: command of the options, such as ``fit``.
        base: config that the options override.

    Raises:
        ActlabError: for an unknown option, a file that is not a config, or an argument before its class.
    """
    config: dict[str, Any] = copy.deepcopy(dict(base or {}))
    places = {"the checkpoint": {"data": {"sample": get_dotted(config, SAMPLE)}}}
    for option in options:
        place = str(option.value) if option.name == "--config" else "the command line"
        for key, value in _settings(option, command, config):
            _set(config, key, value)
            _set(places.setdefault(place, {}), key, value)
    if sample_replaces_dataset(config):
        check_sample(places)
    return config


def _settings(option: Option, command: str, config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the dotted keys and values that an option sets over a config."""
    if option.asks:
        return []
    if option.name == "--config":
        path = Path(str(option.value))
        return [
            (key, with_import_paths(_read_if_file(value, path.parent), key))
            for key, value in read_mapping(path, piped=True).items()
        ]
    key = _key(option, command)
    section, _, argument = key.partition(".")
    if section in SECTIONS and argument not in ("", "class_path") and section not in config:
        raise ActlabError(f"{option.name} is given before its class: give -c FILE or --{section} CLASS first")
    value = _value(option.value, config, key)
    return [(key, with_import_paths(value if argument else _read_if_file(value, Path()), key))]


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; a mapping for ``trainer`` is merged argument by argument."""
    if key == "trainer" and isinstance(value, Mapping) and isinstance(config.setdefault(key, {}), dict):
        for name, argument in value.items():
            put(config, f"{key}.{name}", argument)
    else:
        put(config, key, value)


def _key(option: Option, command: str) -> str:
    """Return the dotted config key that an option sets."""
    key = option.name.removeprefix("--")
    if option.name.startswith("--") and key.rstrip("+").partition(".")[0] in (*top_level(command), *MOVED):
        return key
    known = [f"--{name}" for name in (*top_level(command), "config", "print_config", "help")]
    raise unknown("option", option.name.partition(".")[0], known)


def _read_if_file(value: Any, folder: Path) -> Any:
    """Return a section of a config, read from a file if the value names one."""
    return read_mapping(folder / value) if isinstance(value, str) and value.endswith(FILES) else value


def _value(text: str | None, config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a word for a key; a list or mapping that YAML cannot read stays text."""
    try:
        return read_word(text or "", lambda: takes_text(config, key))
    except ActlabError:
        return text


def put(config: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in a nested config in place, with the rules of LightningCLI's command line.

    ``init_args`` may be omitted below a ``class_path``; ``key+`` appends to a list; a key below a list refers
    to its last item. A new class drops the arguments of the old class.

    Args:
        config: nested config to modify.
        key: dotted key, with ``+`` at the end to append.
        value: value to set.
    """
    *path, last = key.removesuffix("+").removesuffix(".class_path").split(".")
    node = config
    for part in path:
        node = _child(inside(node, part), part)
    holder = inside(node, last)
    before = holder.get(last)
    if key.endswith("+"):
        items = value if isinstance(value, list) else [value]
        holder[last] = [*(before if isinstance(before, list) else []), *items]
    else:
        holder[last] = merged(before, value)


def _child(holder: Any, key: Any) -> dict[str, Any]:
    """Return the mapping below a key, created if missing; for a list, the mapping of its last item."""
    child = holder[key] if isinstance(holder, list) else holder.get(key)
    if isinstance(child, list) and child:
        return _child(child, -1)
    mapping: dict[str, Any]
    mapping = child if isinstance(child, dict) else {"class_path": child} if isinstance(child, str) else {}
    holder[key] = mapping
    return mapping


def merged(before: Any, value: Any) -> Any:
    """Merge a value over another: argument by argument for the same class, otherwise replace the old value."""
    if isinstance(before, dict) and isinstance(value, str) and value == before.get("class_path"):
        return before
    if not (isinstance(before, dict) and isinstance(value, dict) and OBJECT & before.keys()):
        return copy.deepcopy(value)
    another = value.get("class_path", before.get("class_path")) != before.get("class_path")
    result = {} if another else copy.deepcopy(before)
    for key, item in value.items():
        if "class_path" in value and key not in SPEC:
            result[key] = item  # an invalid key; the check of keys reports it
        else:
            put(result, str(key), item)
    return result
