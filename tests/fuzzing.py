"""What the fuzz shares: a time limit, the rule of each command, and values that nobody expects.
damage a file that is in its place.
"""

import itertools
import math
import os
import random
import resource
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import damaging

LONGEST = 20  # seconds a case may take on a busy core
MOST = 3 * 2**30  # bytes that it may take: what never ends also fills the memory
_HERE = "@HERE@"


FINISHED = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 2
  trainer.limit_train_batches: 4
  model.network.hidden: [8]
grid:
  model.activation: [relu, elu]
  model.optimizer.lr: [3.0e-2, 1.0e-5]
select: {tune: [model.optimizer.lr]}
stages: [{name: choose, seeds: 2}, {name: compare, seeds: 5-6}]
probes:
  - {name: noise, class_path: actlab.probes.InputNoise,
     init_args: {strengths: [0.0, 1.0]}, at: last}
keep: [best]
table:
  - {metric: test/error, at: last}
  - {metric: val/loss, at: best}
  - {metric: noise/test/loss, at: last, condition: noise=1}
"""


class HangError(BaseException):
    """A case has not ended in time; no library takes it for an error of its own."""


@contextmanager
def within(seconds: int = LONGEST) -> Iterator[None]:
    """End longer cases, in seconds of this processor, by `HangError`: other programs cost none."""

    def stop(number: int, frame: Any) -> None:
        raise HangError(f"not ended after {seconds} s")

    former = signal.signal(signal.SIGPROF, stop)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, former)


def tried(attempt: Callable[[], Any]) -> tuple[Any, str]:
    """What an attempt gives, and what is wrong: an unexpected exception, or a hang."""
    try:
        with within():
            return attempt(), ""
    except (Exception, HangError) as error:
        frame = next(f for f in reversed(traceback.extract_tb(error.__traceback__)))
        ours = [
            f for f in traceback.extract_tb(error.__traceback__) if "/src/actlab/" in f.filename
        ]
        places = " < ".join(
            f"{Path(f.filename).name}:{f.lineno}" for f in [frame, *reversed(ours[-3:])]
        )
        return None, f"{type(error).__name__}: {str(error)[:150]} at {places}"


def mistake(outcome: Any) -> str:
    """What is wrong with how a command ended: it is 0, or 2 after exactly one line."""
    lines = outcome.err.strip().splitlines()
    if "Traceback" in outcome.err + outcome.out:
        return "a traceback was printed"
    if outcome.code not in (0, 2):
        return f"exit code {outcome.code}"
    if outcome.code == 2 and not (len(lines) == 1 and lines[0].startswith("actlab: error: ")):
        return f"{len(lines)} lines on stderr: {outcome.err[:300]!r}"
    if outcome.code == 2 and len(lines[0]) > 2000:
        return f"a line of {len(lines[0])} characters"
    return ""


def listed(faults: Mapping[Any, str]) -> str:
    """What is wrong, each with its cases."""
    wrong: dict[str, list[str]] = {}
    for case, fault in faults.items():
        if fault:
            wrong.setdefault(fault, []).append(str(case))
    return "\n".join(
        f"{len(cases)} × {fault}: {'; '.join(cases[:4])}" for fault, cases in wrong.items()
    )


# --- values
# -----------------------------------------------------------------------------------------------


def _laughs(levels: int) -> str:
    """Aliases of aliases: ten to the power of ``levels`` values in a few lines."""
    names = [f"&l0 [{', '.join('x' * 10)}]"]
    names += [f"&l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return f"[{', '.join(names)}]"


SCALARS = (
    *(
        "null",
        "true",
        "-1",
        "0",
        "0.5",
        "1e999",
        ".nan",
        "-.inf",
        "1000000000000",
        "9" * 30,
        "9" * 5000,
        '""',
    ),
    *("x", "a.b.c", "/", "..", "~no-one/x", "é☃𝔘", r'"\0"', r'"./\0"', "~no-one/x.py:y", '"a\\nb"'),
    *(
        "y" * 100_000,
        "1:60",
        "0o9",
        "2020-01-01",
        "2020-99-99",
        "!!binary aGk=",
        "!!binary x",
        "!!int x",
    ),
    *(
        "!!float x",
        "!!timestamp x",
        "!!bool x",
        "!unknown x",
        "!!python/object/apply:os.system [echo]",
    ),
    "*nothing",
)
NESTED = (
    *(
        "[]",
        "{}",
        "[[]]",
        "[null]",
        "[true, 1, x]",
        "{a: 1}",
        "{1: 2}",
        "{null: null}",
        "{[1]: 2}",
        "{{}: 2}",
    ),
    *(
        "{a: 1, a: 2}",
        "{1: 1, 1: 2}",
        "{<<: {a: 1}}",
        "{<<: 1}",
        "!!set {a, b}",
        "!!omap [1]",
        "!!pairs [1]",
    ),
    *("&a [*a]", "&a {b: *a}", _laughs(9), "[" * 90 + "]" * 90, "[" * 3000 + "]" * 3000),
    *(
        "{a: " * 80 + "1" + "}" * 80,
        "{class_path: x}",
        "{class_path: os.system}",
        "{class_path: null}",
    ),
    *("{class_path: [1], init_args: 1}", "{name: relu, alpha: [1]}", "{name: 1}"),
    "[" + ", ".join("x" * 3000) + "]",
)
VALUES = (*SCALARS, *NESTED)


def paths(values: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all nested values."""
    items = (
        values.items()
        if isinstance(values, Mapping)
        else enumerate(values)
        if isinstance(values, list)
        else ()
    )
    for key, inner in items:
        yield (*before, key)
        yield from paths(inner, (*before, key))


def changed(values: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy of nested values, changed at one place: ``change`` gets its container and its key."""
    copy = deepcopy(values)
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return copy


OTHER_TYPES = {
    **{
        "null": None,
        "true": True,
        "1e999": math.inf,
        '""': "",
        "[]": [],
        "{}": {},
        "[[]]": [[]],
        "-1": -1,
    },
    **{"a long text": "y" * 100_000, "half a pair": "\ud800", "1e30": 10**30, "1e400": 10**400},
}


class Retyped(NamedTuple):
    """Nested values of which one is another.

    Args:
        case: where, and the name of the other value.
        content: the nested values.
        wrong: whether the other value is of another type; whole numbers and others are of one.
    """

    case: tuple[Any, ...]
    content: Any
    wrong: bool


def retyped(content: Any, each: int = len(OTHER_TYPES)) -> Iterator[Retyped]:
    """Nested values with ``each`` of `OTHER_TYPES` at each place in turn; in a list, the first."""
    others = itertools.cycle(OTHER_TYPES.items())
    for path in ((), *paths(content)):
        if any(isinstance(key, int) and key for key in path):
            continue
        before = reduce(lambda values, key: values[key], path, content)
        for name, value in itertools.islice(others, each):
            other = changed(content, path, partial(_put, value=value)) if path else value
            yield Retyped((*path, name), other, _kind(before) is not _kind(value))


def _put(holder: Any, key: Any, value: Any) -> None:
    holder[key] = value


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def as_yaml(values: Any, text: str = "") -> str:
    """Nested values as YAML, with ``text`` where a change has put the mark."""
    written = yaml.safe_dump(
        values, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True
    )
    return written.replace(f"'{_HERE}'", text)


def replaced(values: Any, path: tuple[Any, ...], text: str) -> str:
    """YAML in which ``text`` stands at a place."""
    return as_yaml(changed(values, path, lambda holder, key: holder.__setitem__(key, _HERE)), text)


def _misspelt(holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        items = [(f"{k}{str(k)[-1]}" if k == key else k, v) for k, v in holder.items()]
        holder.clear()
        holder.update(items)
    else:
        holder.insert(key, holder[key])


def _added(holder: Any, key: Any) -> None:
    holder[key] = {"added": 1, "zusätzlich": holder[key]}


def _beside(holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder.update({"": 1, "a.b": {"c": None}})
    else:
        holder.append(None)


STRUCTURES = {
    "dropped": lambda holder, key: holder.__delitem__(key),
    "misspelt": _misspelt,
    "wrapped": lambda holder, key: holder.__setitem__(key, [holder[key]]),
    "added": _added,
    "beside": _beside,
}


# --- files
# ------------------------------------------------------------------------------------------------

TYPES = (
    *(
        "[]",
        "{}",
        "null",
        "3",
        '"x"',
        "[1, [2]]",
        '{"status": "finished"}',
        '{"content": 1}',
        "a: [b, {c: d}]",
    ),
)
WAYS = (
    *damaging.WAYS,
    *("bit", "cut", "empty", "line", "types", "types", "keys", "nested", "another", "foreign"),
    *("gone", "folder", "fifo", "dangling", "loop", "device"),
)


def damage(file: Path, way: str, source: random.Random, another: Path, foreign: Path) -> None:
    """Damage a file in its place.

    Args:
        file: what is damaged.
        way: one of `WAYS`.
        source: of chance.
        another: a file of the same name, of another run.
        foreign: the same file in another study.
    """
    content = file.read_bytes() if file.is_file() else b""
    content = content if len(content) > 2 else content + b"\n\n\n"
    file.unlink(missing_ok=True)
    if way in ("another", "foreign"):
        shutil.copy(another if way == "another" else foreign, file)
    elif way == "folder":
        file.mkdir()
        (file / "inside").touch()
    elif way == "fifo":
        os.mkfifo(file)
    elif way in ("dangling", "loop", "device"):
        file.symlink_to({"dangling": "nowhere", "loop": file.name, "device": "/dev/zero"}[way])
    elif way != "gone":
        file.write_bytes(_content(content, way, source))


def _content(content: bytes, way: str, source: random.Random) -> bytes:
    if way == "empty":
        return b""
    if way == "types":
        return source.choice(TYPES).encode()
    if way == "nested":
        return b'{"digest": ' + b'{"a": ' * 3000 + b"1" + b"}" * 3001
    lines = content.splitlines(keepends=True)
    at = source.randrange(len(lines))
    if way == "line":
        return b"".join(lines[:at] + lines[at + 1 :])
    if way == "keys":
        return b"".join(lines[: at + 1] + lines[at:])
    return damaging.damaged(content, way, source)
