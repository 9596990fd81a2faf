"""Text that is not YAML: one clear line."""

import pytest

from actlab.errors import ActlabError
from actlab.storage.mappings import parse, read_mapping

# Ten to the power of nine values
ALIASES_OF_ALIASES = (
    "{a0: &a0 [1], "
    + ", ".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(9))
    + "}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2020-99-99", "month"),
        ("!!int x", "invalid literal"),
        ("!!timestamp x", "cannot be read"),
        ("!!bool x", "cannot be read"),
        ("9" * 5000, "4300 digits"),
        ("!!python/name:os.system", "could not determine a constructor"),
        ("[" * 1000 + "]" * 1000, "recursion"),
        ("{a: 1, a: 2}", "duplicate key 'a'. Keep one."),
        ("&a [*a]", "a value contains itself"),
        ("&a {b: {c: *a}}", "a value contains itself"),
        (ALIASES_OF_ALIASES, "stand for more than 1000000 values"),
    ],
)
def test_a_file_that_cannot_be_read_is_rejected(tmp_path, text, message):
    with pytest.raises(ActlabError, match=message):
        parse(text)
    (tmp_path / "x.yaml").write_text(f"key: {text}")
    with pytest.raises(ActlabError, match=rf"x\.yaml.*{message}"):
        read_mapping(tmp_path / "x.yaml")


def test_aliases_are_what_they_stand_for():
    assert parse("{a: &a [1, x], b: *a, c: {<<: {d: 2}}}") == {
        "a": [1, "x"],
        "b": [1, "x"],
        "c": {"d": 2},
    }
    # No duplicate key
    assert parse("{a: &a {x: 1, y: 1}, b: {<<: *a, x: 2}}")["b"] == {
        "x": 2,
        "y": 1,
    }
    assert parse("") is None
