"""The digest of a user's code: what it does counts, how it is written does not."""

import textwrap

import pytest

from actlab.storage.contents import content_of

TEXT = '''\
"""A unit."""

import torch


class Unit(torch.nn.Module):
    """Scaled."""

    def forward(self, x: torch.Tensor, *, scale=None) -> torch.Tensor:
        """Return x, scaled."""
        words = {**{}, "α": f"{scale!r:>{9}}{''} of" + "b" * 0}  # unused
        return x * (1.0 if scale is None else scale) or words
'''

OTHERS = {
    "f-strings": '''\
"""Words."""


def words(x, width=4, *, last: "int | None" = None, **kinds):
    """Return x in words."""
    inner = {"a": [1, 2]}
    yield f"{x!r:>{width}.{width - 1}} {{of}} {inner['a'][0]=} {x:%Y-%m-%d}" f"" "plain"
    yield (
        f"{f'{x}' + 'é'!s}{'' if last is None else last}" * 0,
        1e-3, 2j, 10**30, ..., b"\\xff", -0.0, True,
    )
    return (lambda *a, k=None: (a, k, None, 0))(*kinds, **kinds)
''',
    "match and except*": """\
import asyncio
from contextlib import nullcontext as nothing


async def read(value, *more):
    try:
        async with asyncio.timeout(1) as one, nothing():
            async for _ in value:
                await one
    except* (OSError, ValueError) as group:
        raise RuntimeError from group
    finally:
        pass
    match value, more:
        case {"kind": "a" | "b" as kind, **rest} if rest:
            return kind
        case [int(real=0), *_, None] | (1.5, -2 + 3j):
            return 0
        case str() | None | True:
            return None
        case _:
            del more
    return [x async for x in value if x] or {x: y for x, y in more} or {*more}
""",
    "decorators and walrus": '''\
import functools as f
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Unit(dict, metaclass=type):
    """A unit."""

    scale: float = field(default=0.0)  # type: ignore[misc]
    names: ClassVar[tuple[str, ...]] = ()

    @property
    @f.cache
    def half(self, /, y: "Unit | None" = None, *, z=0) -> float | None:
        while (n := self.scale * 0) is not None and n not in (None, 0):
            global _n
            _n, *rest = n, *self[::2, 1:None]
            break
        else:
            assert not y, u"never"
        for _n in range(3):
            continue
        return (y @ z if y else None) ** -z if 1 < z <= 2 else ~z
''',
}
DIGESTS = {
    TEXT: "3b0e6e6cdeccf5ce75e963e0568b1c2703c502579cb418a6cb31f2fd792feb73",
    OTHERS["f-strings"]: "f0de5e069db6254b05945eeab14c245481d63c82655480f9c8b407be3cb349aa",
    OTHERS["match and except*"]: "2874a343004760529307835f6a20a906df8f7790b5dd06ae66b94a834debf047",
    OTHERS[
        "decorators and walrus"
    ]: "fa65a4346533db94193a2d7156604c392a43c688778baff99247b190274ba703",
}


@pytest.fixture
def digest(tmp_path):
    def of(text, file="unit.py"):
        (tmp_path / file).write_text(text)
        return content_of(f"{tmp_path / file}:Unit", of_data=False)

    return of


@pytest.mark.parametrize("text", DIGESTS, ids=["a unit", *OTHERS])
def test_the_digest_of_a_text_is_the_same_everywhere(digest, text):
    """By Python 3.11, 3.12 and 3.13, whose syntax trees differ."""
    assert digest(text) == DIGESTS[text]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # unused", ""),
        ('"""Scaled."""', '"""Scaled by a number."""\n'),
        ('        """Return x, scaled."""\n', ""),
        ('"b" * 0', "('b'\n        * 0)"),
        ("import torch", "import torch  # type: ignore"),
    ],
)
def test_how_code_is_written_does_not_count(digest, old, new):
    assert old in TEXT
    assert digest(TEXT.replace(old, new)) == digest(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* 0", "* None"),
        ("**{}", "None: {}"),
        ("1.0", "1"),
        ("is None", "== None"),
        ("{scale!r:>{9}}", "{scale!s:>{9}}"),
        ("*, scale=None", "*, scale"),
        ("*, scale=None", "scale=None"),
        ('"α"', '"a"'),
    ],
)
def test_what_code_does_counts(digest, old, new):
    assert old in TEXT
    assert digest(TEXT.replace(old, new)) != digest(TEXT)


def test_code_of_any_depth_has_a_digest_and_an_invalid_escape_no_warning(digest):
    long = "x = " + " + ".join(["1"] * 900)
    assert digest(long) == digest(f"{long}  # long")
    assert digest('x = "\\d"') == digest('x = "\\d"  # as Python keeps it')


def test_what_python_cannot_parse_counts_by_its_bytes(digest):
    assert digest("def") != digest("def  # broken")
    assert digest(textwrap.indent(TEXT, " ")) != digest(textwrap.indent(TEXT, "  "))
