"""The words of ``actlab fit``: what the parser receives, and what the words and config files state."""

from __future__ import annotations

import copy
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pytorch_lightning.loggers import Logger

from actlab.config.class_paths import class_of, with_import_paths
from actlab.config.messages import mistake
from actlab.config.paths import ACTIVATION, OBJECT, get_dotted, inside
from actlab.config.sections import (
    FILES,
    MOVED,
    SECTIONS,
    class_at,
    sample_replaces_dataset,
    top_level,
)
from actlab.config.signatures import find, parameters, takes_activation_name, takes_text
from actlab.config.text import check_sample
from actlab.config.values import as_list
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage.mappings import read_mapping, read_word, written
from actlab.storage.resources import config_file
from actlab.storage.spec import Spec

_CONFIG = ("-c", "--config")
_HELP = ("-h", "--help")
PRINT = "--print_config"
RUN_FOLDER = "RUN_FOLDER"  # stands for the run's folder, which is only known after parsing


class Option(NamedTuple):
    """An option and its value; the value is None for options without value, such as ``--help``."""

    name: str
    value: str | None
    typed: str = ""  # as it was typed, for commands that are printed

    @property
    def asks_help(self) -> bool:
        """Whether the option prints help."""
        return self.name in _HELP or self.name.endswith(".help")

    @property
    def asks(self) -> bool:
        """Whether the option only prints something and nothing is run."""
        return self.asks_help or self.name == PRINT

    @property
    def word(self) -> str:
        """The option as one word of a command line."""
        return self.name if self.value is None else f"{self.name}={self.value}"


def options_of(words: Sequence[str]) -> list[Option]:
    """Split command-line arguments into options; the value of ``--config`` becomes the path of the file."""
    options, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not _opens_option(name):
            raise ActlabError(
                f"unexpected argument {word!r}: write -c FILE for a config and --key VALUE for a value"
            )
        option = Option(name, value if equals else None, shlex.quote(word))
        if not equals and rest and not _opens_option(rest[0]) and name != PRINT:
            value = rest.pop(0)
            option = Option(name, value, shlex.join([word, value]))
        if option.value is None and not option.asks:
            raise ActlabError(f"{name} needs a value: write {name} VALUE")
        if name in _CONFIG:
            option = option._replace(
                name="--config", value=str(config_file(str(option.value), piped=True))
            )
        options.append(option)
    return options


def _opens_option(word: str) -> bool:
    """Return whether an argument starts an option; values such as ``-1`` or ``- a`` do not."""
    number = word[1:2].isdigit() or word[1:2] == "."
    return word.startswith("-") and len(word) > 1 and not number and " " not in word


class Words:
    """The words of a command for LightningCLI's parser, and what they state over the config ``base``."""

    def __init__(
        self, options: Iterable[Option], command: str, base: Mapping[str, Any] | None = None
    ) -> None:
        self.words: list[str] = []  # for the parser
        self.given: dict[str, Any] = {}  # nested values that they state, without defaults
        self.left_out: dict[
            str, list[str]
        ] = {}  # keys that a new class does not accept, by its path
        self.checkpoint: str | None = None  # `ckpt_path` of a config file
        places: dict[str, dict[str, Any]] = {}
        for key, value in (base or {}).items():
            self._add(key, value, places.setdefault("the checkpoint", {}))
        for option in options:
            if option.name == "--config":
                path = Path(str(option.value))
                for key, value in read_mapping(
                    path, piped=True
                ).items():  # as words, with the rules of options
                    located = with_import_paths(_read_if_file(value, path.parent), key)
                    self._add(key, located, places.setdefault(str(path), {}))
            elif not option.asks:
                place = places.setdefault("the command line", {})
                self._add(_key(option, command), self._value_of(option), place)
        if sample_replaces_dataset(self.given):
            check_sample(places)

    def _value_of(self, option: Option) -> Any:
        key = option.name.removeprefix("--")
        value = value_of(option.value, self.given, key)
        section, _, argument = key.partition(".")
        if section in SECTIONS and argument not in ("", "class_path") and section not in self.given:
            raise ActlabError(
                f"{option.name} is given before its class: give -c FILE or --{section} CLASS first"
            )
        return with_import_paths(value if argument else _read_if_file(value, Path()), key)

    def _add(self, key: str, value: Any, place: dict[str, Any]) -> None:
        if key == "trainer" and isinstance(value, Mapping):  # the parser sets argument by argument
            for name, item in value.items():
                self._add(f"trainer.{name}", item, place)
            return
        if key == "ckpt_path":  # the parser never sees it
            self.checkpoint = value
            return
        key, value = self._activation(key, value)
        if key.startswith("trainer.logger"):
            value = in_run_folder(value)
        kept_key = key.removesuffix(".class_path").replace(".init_args", "")
        before = class_of(get_dotted(self.given, kept_key))
        for stated in (self.given, place):
            state(stated, key, value)
        if before is not None:
            self._leave_out(kept_key, before, value)
        self.words.append(f"--{key}={value if isinstance(value, str) else _word(value)}")

    def _leave_out(self, key: str, before: Any, value: Any) -> None:
        """Remove the arguments that were stated for the class ``before`` and that a new one does not accept."""
        stated = get_dotted(self.given, key)
        owner = class_at(self.given, key)
        if owner is None or not isinstance(stated, dict) or stated["class_path"] == before:
            return
        known = parameters(owner)
        arguments = stated.get("init_args")
        if known is None or not isinstance(arguments, dict):
            return

        # Keep what is stated together with the new class, mistakes too
        path = stated["class_path"]
        together = value.get("init_args") if isinstance(value, Mapping) else None
        for name in [name for name in arguments if name not in (together or ())]:
            where = f"{key}.{name}"
            if name in known and not mistake(arguments[name], known[name].annotation, where, path):
                continue
            if arguments.pop(name) is not None:
                self.left_out.setdefault(path, []).append(where)

    def _activation(self, key: str, value: Any) -> tuple[str, Any]:
        """Return the key and value of an activation as a whole, for a parameter of one too."""
        section, *below = [part for part in key.split(".") if part != "init_args"]
        is_activation = section == "model" and below[:1] == ["activation"]
        if not is_activation or not takes_activation_name(class_at(self.given, "model")):
            return key, value
        if len(below) == 2 and below[1] != "class_path":
            value = Spec.of(get_dotted(self.given, ACTIVATION)).with_params({below[1]: value})
        if isinstance(value, str | Mapping | Spec):
            value = Spec.of(value).plain
        return ACTIVATION, value


def _word(value: Any) -> str:
    """Return a value as YAML on one line."""
    return written(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()


def in_run_folder(value: Any) -> Any:
    """Return the value of ``trainer.logger`` with `RUN_FOLDER` for each ``save_dir`` that a logger requires."""
    if isinstance(value, list):
        return [in_run_folder(item) for item in value]
    spec = {"class_path": value} if isinstance(value, str) else value
    if not isinstance(spec, dict) or not isinstance(path := spec.get("class_path"), str):
        return value
    taken, arguments = None, spec.get("init_args") or {}
    with suppress(ActlabError):  # the parser raises it
        taken = (parameters(find(path, (Logger,), "trainer.logger")) or {}).get("save_dir")
    if taken is None or not taken.required or not isinstance(arguments, dict):
        return value
    return {**spec, "init_args": {"save_dir": RUN_FOLDER, **arguments}}


def _key(option: Option, command: str) -> str:
    key = option.name.removeprefix("--")
    if option.name.startswith("--") and key.rstrip("+").partition(".")[0] in (
        *top_level(command),
        *MOVED,
    ):
        return key
    known = [
        f"--{name}" for name in (*top_level(command), *MOVED, "config", "print_config", "help")
    ]
    raise unknown("option", option.name.partition(".")[0], known)


def _read_if_file(value: Any, folder: Path) -> Any:
    return (
        read_mapping(folder / value) if isinstance(value, str) and value.endswith(FILES) else value
    )


def value_of(text: str | None, config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a word for a key; a list or mapping that YAML cannot read stays text."""
    try:
        return read_word(text or "", lambda: takes_text(config, key))
    except ActlabError:
        return text


def state(given: dict[str, Any], key: str, value: Any) -> None:
    """Merge a value at a dotted key, below a list of its last item, into nested values; ``+`` appends."""
    *path, last = key.removesuffix(".class_path").split(".")
    node = given
    for part in path:
        holder: Any = inside(node, part)
        place: Any = part
        child = holder.get(part)
        if isinstance(child, list) and child:
            holder, child, place = child, child[-1], -1
        holder[place] = node = (
            child if isinstance(child, dict) else {"class_path": child} if child else {}
        )
    name = last.removesuffix("+")
    holder = inside(node, name)
    before = holder.get(name)
    if name != last:
        holder[name] = [*(as_list(before) if before else ()), *as_list(value)]
    else:
        holder[name] = _overlaid(before, value)


def _overlaid(before: Any, value: Any) -> Any:
    if isinstance(before, dict) and "class_path" in before and isinstance(value, str):
        value = {"class_path": value}
    if not (isinstance(before, dict) and isinstance(value, Mapping) and OBJECT & before.keys()):
        return copy.deepcopy(value)
    old, new = before.get("init_args"), value.get("init_args")
    if not (isinstance(old, dict) and isinstance(new, Mapping)):
        return {**before, **value}
    return {
        **before,
        **value,
        "init_args": {**old, **{k: _overlaid(old.get(k), v) for k, v in new.items()}},
    }
