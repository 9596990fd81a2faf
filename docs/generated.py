"""Parts of the reference, written from the program: keys of study files, commands and options."""

from __future__ import annotations

import json
import re
from argparse import SUPPRESS, Action, ArgumentParser, _SubParsersAction
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from pydantic import BaseModel

from actlab.cli.commands import COMMANDS, FITS
from actlab.studies import schema

# After the meaning of keys that say where a value is read
SEE = "; [all places](#where-a-value-is-read)"
_PATTERNS = {
    schema.NAME: "name",
    r"^(mean( \d+-\d+)?|below \d+(\.\d+)?)$": "`mean`, `mean 5-50`, `below 0.1`",
    r"^best \S+$": "`best METRIC`",
}
_TYPES = {
    **{
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` or `false`",
    },
    "object": "a mapping",
}


class Key(NamedTuple):
    """A key of a part of a study file, in words."""

    name: str
    type: str
    default: str
    meaning: str


def parts() -> dict[str, list[Key]]:
    """Return the keys of each part of a study file; a panel has those that a figure lacks."""
    top = schema.File.model_json_schema()
    places = top["$defs"]["ColumnPart"]["properties"]["at"]["anyOf"]
    found: dict[str, list[Key]] = {}
    waiting: list[tuple[str, type[BaseModel], Mapping[str, Any]]] = [("study", schema.File, top)]
    while waiting:
        part, model, own = waiting.pop(0)
        found[part] = []
        for name, entry in own["properties"].items():
            if part == "panels" and _inherited(name, entry, top):
                continue
            child = _child(name, part)
            if inner := _part_in(entry):
                waiting.append((child, getattr(schema, inner), top["$defs"][inner]))
            meaning = _escaped(entry.get("description", "")) + (
                SEE if entry.get("anyOf") == places else ""
            )
            found[part].append(Key(name, _type(entry, child), _default(model, name), meaning))
    return found


def _part_in(entry: Mapping[str, Any]) -> str:
    """Return the part's name in an entry of the JSON schema, alone or in a list; or no text."""
    for option in entry.get("anyOf", [entry]):
        if path := option.get("$ref") or option.get("items", {}).get("$ref"):
            return str(path).rpartition("/")[2]
    return ""


def study_file() -> str:
    """Return a table for each part of a study file, as Markdown."""
    titles = {
        **{
            "study": "The top level",
            "select": "select",
            "blocks": "blocks[]",
            "stages": "stages[]",
        },
        **{"probes": "probes[]", "table": "table[]", "published": "published"},
        **{
            "published.values": "published.values[]",
            "figures": "figures[]",
            "panels": "figures[].panels[]",
        },
    }
    text = []
    for part, keys in parts().items():
        text += [f"({_anchor(part)})=", f"### {titles.get(part, part)}", ""]
        if part == "panels":
            text += [
                "A panel also takes the keys of its figure from `y` to `log`, and overrides them.",
                "",
            ]
        text += ["| key | type | default | meaning |", "|---|---|---|---|"]
        text += [f"| `{k.name}` | {k.type} | {k.default} | {k.meaning} |" for k in keys]
        text.append("")
    return "\n".join(text)


def _child(name: str, part: str) -> str:
    return name if part == "study" or name == "panels" else f"{part}.{name}"


def _anchor(part: str) -> str:
    return f"part-{part.replace('.', '-')}"


def _inherited(name: str, entry: Mapping[str, Any], top: Mapping[str, Any]) -> bool:
    return top["$defs"]["Figure"]["properties"].get(name) == entry


def _options(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return entry.get("anyOf", [entry])


def _type(entry: Mapping[str, Any], part: str) -> str:
    """Return the types that an entry accepts, in words."""
    single = [option for option in _options(entry) if option.get("type") != "array"]
    words = _words([kind for option in single for kind in _kinds(option, part)])
    items = next((option["items"] for option in _options(entry) if "items" in option), None)
    if items is None:
        return words or "number"
    inner = _words([kind for option in _options(items) for kind in _kinds(option, part)])
    plural = inner.replace("whole number", "whole numbers").replace("a mapping", "mappings")
    return (
        f"{words}, or a list of them"
        if inner == words
        else ", ".join(filter(None, (words, f"list of {plural}")))
    )


def _kinds(option: Mapping[str, Any], part: str) -> list[str]:
    if "$ref" in option:
        return [f"[a mapping](#{_anchor(part)})"]
    if "enum" in option:
        return [f"`{value}`" for value in option["enum"]]
    return [_PATTERNS.get(option.get("pattern", ""), _TYPES.get(option.get("type", ""), ""))]


def _words(kinds: Iterable[str]) -> str:
    """Return types without repetitions; numbers may be whole, null is the default of its key."""
    found = dict.fromkeys(filter(None, kinds))
    if "number" in found:
        found.pop("whole number", None)
    return ", ".join(found)


def _default(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, BaseModel) or value in (None, "", [], {}):
        return ""
    plain = [
        one.model_dump(exclude_unset=True) if isinstance(one, BaseModel) else one
        for one in _listed(value)
    ]
    text = json.dumps(plain if isinstance(value, list) else plain[0]).replace('"', "")
    return f"`{text}`"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def commands() -> str:
    """Return every command but ``fit`` and its kin, with options and examples, as Markdown."""
    names = [name for name in COMMANDS if name not in FITS]
    return "\n".join(
        line for name in names for line in _command(import_module(COMMANDS[name]).parser())
    )


def _command(parser: ArgumentParser, about: str = "", known: Iterable[str] = ()) -> Iterator[str]:
    """Yield the section of a command, then those of its commands."""
    subs = [sub for action in parser._actions for sub in _subparsers(action)]
    shared, names = _shared({sub.prog.rpartition(" ")[2]: _options_of(sub) for sub, _ in subs})
    own = {name: text for name, text in _options_of(parser).items() if name not in known}
    yield from ["", f"## {parser.prog}", "", _sentence(parser.description or about), ""]
    if shared:
        yield from [f"Options of `{'`, `'.join(names[:-1])}` and `{names[-1]}`:", ""]
    if own or shared:
        yield from ["| option | meaning |", "|---|---|"]
        yield from (f"| {name} | {text} |" for name, text in {**own, **shared}.items())
    if parser.epilog:
        yield from ["", "```sh", *(line.strip() for line in parser.epilog.splitlines()[1:]), "```"]
    for sub, text in subs:
        yield from _command(sub, text, shared if sub.prog.rpartition(" ")[2] in names else ())


def _shared(options: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the options that many commands have, and the names of these commands.

    Args:
        options: options with their meaning, by the name of the command.
    """
    usual = Counter(name for own in options.values() for name in own).most_common(1)
    if not usual or usual[0][1] <= 2:
        return {}, []
    commands = [name for name, own in options.items() if usual[0][0] in own]
    first = options[commands[0]]
    return {
        n: text for n, text in first.items() if all(n in options[c] for c in commands)
    }, commands


def _options_of(parser: ArgumentParser) -> dict[str, str]:
    """Return the meaning of each option and positional argument, by how it is written."""
    found = {}
    for action in parser._actions:
        if (
            not _subparsers(action)
            and action.help != SUPPRESS
            and "--help" not in action.option_strings
        ):
            found[_written(action)] = _escaped((action.help or "") % {"default": action.default})
    return found


def _written(action: Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    return f"`{' '.join(filter(None, (', '.join(action.option_strings), value)))}`"


def _subparsers(action: Action) -> list[tuple[ArgumentParser, str]]:
    """Return the parsers of an action with their short help."""
    if not isinstance(action, _SubParsersAction):
        return []
    told = {choice.dest: choice.help or "" for choice in action._choices_actions}
    return [(parser, told.get(name, "")) for name, parser in action.choices.items()]


def _sentence(text: str) -> str:
    text = _escaped(text)
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith(".") else ".")


def _escaped(text: str) -> str:
    """Return a text in one line for a table of Markdown, with options and braces as code."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")
    return re.sub(r"(?<!`)(--\w[\w-]*|'\{[^']*\}')", r"`\1`", plain)
