"""The words of ``actlab fit``, as the parser receives them and as the config that they state."""

from __future__ import annotations

import copy
import math
import shlex
from collections import defaultdict
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
# Stands for the run's folder, which is only known after parsing.
RUN_FOLDER = "RUN_FOLDER"


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
        if self.value is None:
            return self.name
        return f"{self.name}={self.value}"


def options_of(words: Sequence[str]) -> list[Option]:
    """Split command-line arguments into options.

    The value of ``--config`` becomes the path of the file.
    """
    options = []
    remaining = list(words)
    while remaining:
        # Read the name, and the value behind an equals sign
        word = remaining.pop(0)
        name, equals, text = word.partition("=")
        if not _opens_option(name):
            raise ActlabError(
                f"unexpected argument {word!r}. Use -c CONFIG for a config and --KEY VALUE for a "
                "value."
            )

        # ``--key=value``
        value = text if equals else None
        option = Option(name, value, shlex.quote(word))

        # Read the value in the next word
        if (
            not equals
            and name != PRINT
            and remaining
            and not _opens_option(remaining[0])
        ):
            next_word = remaining.pop(0)
            option = Option(name, next_word, shlex.join([word, next_word]))
        if option.value is None and not option.asks:
            raise ActlabError(f"{name}: expected a value, got none. Use {name} VALUE.")

        # Find the config file
        if name in _CONFIG:
            path = config_file(str(option.value), piped=True)
            option = option._replace(name="--config", value=str(path))
        options.append(option)
    return options


def _opens_option(word: str) -> bool:
    """Return whether an argument starts an option; values such as ``-1`` or ``- a`` do not."""
    number = word[1:2].isdigit() or word[1:2] == "."
    return word.startswith("-") and len(word) > 1 and not number and " " not in word


class Words:
    """The words of a command for LightningCLI's parser, and the config that they state.

    Options, config files and the record of a checkpoint become words by the same rules, in their
    order: a later one overrides an earlier one, and a new class drops the arguments that it does
    not accept. Types and defaults are the parser's, which runs later.

    Args:
        options: the options of the command line, config files among them.
        command: ``fit``, ``validate``, ``test`` or ``predict``.
        base: a config under all options, such as the record of a checkpoint.

    Attributes:
        words: for the parser.
        config: nested values that the words state, without defaults.
        dropped: keys that a new class does not accept, by the path of this class.
        checkpoint: ``ckpt_path`` of a config file.
    """

    def __init__(
        self,
        options: Iterable[Option],
        command: str,
        base: Mapping[str, Any] | None = None,
    ) -> None:
        # Filled by `_add`, value by value
        self.words: list[str] = []
        self.config: dict[str, Any] = {}
        self.dropped: dict[str, list[str]] = {}
        self.checkpoint: str | None = None

        # State the values of each source, later ones over earlier ones
        sources: dict[str, dict[str, Any]] = defaultdict(dict)
        # The lowest source first
        for key, value in (base or {}).items():
            self._add(key, value, sources["the checkpoint"])

        for option in options:
            if option.name == "--config":
                path = Path(str(option.value))
                values = read_mapping(path, piped=True)
                for key, value in values.items():
                    # Files that a config names are relative to its folder
                    content = _read_if_file(value, path.parent)
                    self._add(key, with_import_paths(content, key), sources[str(path)])
            elif not option.asks:
                # Raises before any value is read
                key = _key(option, command)
                self._add(key, self._value_of(option), sources["the command line"])

        # Reject a dataset that the sample would replace
        if sample_replaces_dataset(self.config):
            check_sample(sources)

    def _value_of(self, option: Option) -> Any:
        """Return the value of an option, or the content of a file in place of a section."""
        key = option.name.removeprefix("--")
        value = value_of(option.value, self.config, key)
        # An argument belongs to a class that is stated before it
        section, _, argument = key.partition(".")
        is_argument = argument not in ("", "class_path")
        if is_argument and section in SECTIONS and section not in self.config:
            raise ActlabError(
                f"{section}: expected a class, got none. Put -c CONFIG or --{section} CLASS before "
                f"{option.name}."
            )
        # A section may be a file: ``--model model.yaml``
        if not argument:
            value = _read_if_file(value, Path())
        return with_import_paths(value, key)

    def _add(self, key: str, value: Any, source: dict[str, Any]) -> None:
        """State a value in the config and in its source, and add its word for the parser."""
        if key == "trainer" and isinstance(value, Mapping):
            # The parser sets argument by argument.
            for name, argument in value.items():
                self._add(f"trainer.{name}", argument, source)
            return
        if key == "ckpt_path":  # the parser never sees it
            self.checkpoint = value
            return

        # Complete activations and loggers
        key, value = self._activation(key, value)
        if key.startswith("trainer.logger"):
            value = in_run_folder(value)

        # State the value, and drop the arguments of the class that it replaces
        object_key = key.removesuffix(".class_path").replace(".init_args", "")
        replaced = class_of(get_dotted(self.config, object_key))
        state(self.config, key, value)
        state(source, key, value)
        if replaced is not None:
            self._drop(object_key, replaced, value)

        # Write the word for the parser
        text = value if isinstance(value, str) else _word(value)
        self.words.append(f"--{key}={text}")

    def _drop(self, key: str, replaced: Any, value: Any) -> None:
        """Drop the arguments of the class ``replaced`` that the new class does not accept."""
        # Find what the new class accepts
        stated = get_dotted(self.config, key)
        kind = class_at(self.config, key)
        if (
            kind is None
            or not isinstance(stated, dict)
            or stated["class_path"] == replaced
        ):
            return
        accepted = parameters(kind)
        arguments = stated.get("init_args")
        if accepted is None or not isinstance(arguments, dict):
            return

        # Keep what is stated together with the new class, mistakes too
        stated_together = None
        if isinstance(value, Mapping):
            stated_together = value.get("init_args")
        earlier = [name for name in arguments if name not in (stated_together or ())]

        # Drop what was stated for the earlier class and does not fit
        path = stated["class_path"]
        for name in earlier:
            argument_key = f"{key}.{name}"
            if name in accepted:
                annotation = accepted[name].annotation
                if not mistake(arguments[name], annotation, argument_key):
                    continue
            if arguments.pop(name) is not None:
                self.dropped.setdefault(path, []).append(argument_key)

    def _activation(self, key: str, value: Any) -> tuple[str, Any]:
        """Return the key and value of an activation as a whole, for a parameter of one too."""
        # ``model.activation.alpha`` and ``model.init_args.activation.alpha`` mean the
        # same
        parts = [part for part in key.split(".") if part != "init_args"]
        if parts[:2] != ["model", "activation"]:
            return key, value
        # A class of another package may mean something else by ``activation``
        if not takes_activation_name(class_at(self.config, "model")):
            return key, value

        # A parameter changes the activation that was stated before
        if len(parts) == 3 and parts[2] != "class_path":
            activation = Spec.of(get_dotted(self.config, ACTIVATION))
            value = activation.with_params({parts[2]: value})
        # Equal activations get one spelling
        if isinstance(value, str | Mapping | Spec):
            value = Spec.of(value).plain
        return ACTIVATION, value


def _word(value: Any) -> str:
    """Return a value as YAML on one line."""
    return (
        written(value, default_flow_style=True, width=math.inf)
        .removesuffix("...\n")
        .strip()
    )


def in_run_folder(value: Any) -> Any:
    """Return the value of ``trainer.logger`` with `RUN_FOLDER` for each required ``save_dir``."""
    # Lightning accepts several loggers
    if isinstance(value, list):
        return [in_run_folder(item) for item in value]

    # A class path alone, or with arguments
    logger = {"class_path": value} if isinstance(value, str) else value
    if not isinstance(logger, dict) or not isinstance(logger.get("class_path"), str):
        return value

    # Find out whether the class requires a folder
    save_dir = None
    with suppress(ActlabError):  # the parser raises it
        kind = find(logger["class_path"], (Logger,), "trainer.logger")
        save_dir = (parameters(kind) or {}).get("save_dir")
    if save_dir is None or not save_dir.required:
        return value

    arguments = logger.get("init_args") or {}
    # The parser reports arguments that are not a mapping
    if not isinstance(arguments, dict):
        return value
    # A stated folder wins
    return {**logger, "init_args": {"save_dir": RUN_FOLDER, **arguments}}


def _key(option: Option, command: str) -> str:
    """Return the dotted key of an option, or raise for a key that no config has."""
    key = option.name.removeprefix("--")
    section = key.rstrip("+").partition(".")[0]
    allowed = (*top_level(command), *MOVED)
    if option.name.startswith("--") and section in allowed:
        return key
    names = [f"--{name}" for name in (*allowed, "config", "print_config", "help")]
    name = option.name.partition(".")[0]
    raise unknown("option", name, names, command=f"actlab {command} --help")


def _read_if_file(value: Any, folder: Path) -> Any:
    """Return a value, or the content of the file that it names in a folder."""
    if isinstance(value, str) and value.endswith(FILES):
        return read_mapping(folder / value)
    return value


def value_of(text: str | None, config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a word for a key; a list or mapping that YAML cannot read stays text."""
    try:
        return read_word(text or "", lambda: takes_text(config, key))
    except ActlabError:
        return text


def state(config: dict[str, Any], key: str, value: Any) -> None:
    """Merge a value at a dotted key into nested values.

    Below a list, a key is a key of its last item. A ``+`` at the end of the key appends.
    """
    *path, last = key.removesuffix(".class_path").split(".")

    # Go down to the mapping of the last part
    node = config
    for part in path:
        holder = inside(node, part)
        child = holder.get(part)
        if isinstance(child, list) and child:
            node = _as_object(child[-1])
            child[-1] = node
        else:
            node = _as_object(child)
            holder[part] = node

    # Set the value, or append to it
    name = last.removesuffix("+")
    holder = inside(node, name)
    before = holder.get(name)
    if name == last:
        holder[name] = _merged(before, value)
    else:
        items = as_list(before) if before else []
        holder[name] = [*items, *as_list(value)]


def _as_object(value: Any) -> dict[str, Any]:
    """Return the mapping that describes an object: itself, of a class path, or an empty one."""
    if isinstance(value, dict):
        return value
    if value:
        return {"class_path": value}
    return {}


def _merged(before: Any, value: Any) -> Any:
    """Return a value over an earlier one; of objects, the arguments are merged."""
    # Text over an object is the path of its new class
    if isinstance(before, dict) and "class_path" in before and isinstance(value, str):
        value = {"class_path": value}
    # Only two objects are merged
    if not (
        isinstance(before, dict)
        and isinstance(value, Mapping)
        and OBJECT & before.keys()
    ):
        return copy.deepcopy(value)

    merged = {**before, **value}
    # Replace single arguments, and keep the others
    arguments_before = before.get("init_args")
    arguments = value.get("init_args")
    if isinstance(arguments_before, dict) and isinstance(arguments, Mapping):
        merged["init_args"] = dict(arguments_before)
        for name, argument in arguments.items():
            merged["init_args"][name] = _merged(arguments_before.get(name), argument)
    return merged
