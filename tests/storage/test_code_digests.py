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


@pytest.fixture
def digest(tmp_path):
    def of(text, file="unit.py"):
        (tmp_path / file).write_text(text)
        return content_of(f"{tmp_path / file}:Unit", of_data=False)

    return of


def test_the_digest_of_a_text_is_the_same_everywhere(digest):
    assert digest(TEXT) == "3b0e6e6cdeccf5ce75e963e0568b1c2703c502579cb418a6cb31f2fd792feb73"


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
