"""Grid values: which are the same, and how words distinguish them."""

from pathlib import Path

from actlab.config.labels import in_full, printer, printers
from actlab.config.values import named, same
from actlab.studies.points import Point


def test_one_value_written_in_two_ways_is_the_same():
    for one, other in (
        ("relu", "relu"),
        ("relu", {"name": "relu"}),
        ({"name": "elu", "alpha": 2}, {"alpha": 2.0, "name": "elu"}),
        ("./mine.py:bent", str(Path.cwd() / "mine.py") + ":bent"),
        (0, 0.0),
        (0.0, -0.0),
        ([8, 8], [8.0, 8]),
    ):
        assert same(one, other)
        assert same(other, one)


def test_a_text_names_a_value_of_the_grid_but_is_not_the_same():
    for text, value in (
        ("elu(alpha=2)", {"name": "elu", "alpha": 2}),
        ("elu(alpha=2)", {"name": "elu", "alpha": 2.0}),
        ("./mine.py:bent(k=1)", {"name": "./mine.py:bent", "k": 1}),
        ("pkg.Unit(k=1)", {"class_path": "pkg.Unit", "init_args": {"k": 1}}),
        ("0", 0.0),
        ("0.50", 0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("[8, 8]", [8, 8]),
    ):
        assert not same(text, value)
        assert named(text, ["other", value]) is value
        assert named(text, [value, text]) == text
        assert named(text, ["other"]) == text


def test_different_values_do_not_match():
    for one, other in (
        ("relu", "./mine.py:relu"),
        ("relu", "pkg.units:relu"),
        ("relu", {"name": "./mine.py:relu"}),
        ("relu", {"class_path": "pkg.relu"}),
        ("elu(alpha=2)", {"name": "./mine.py:elu", "alpha": 2}),
        ("elu", {"name": "elu", "alpha": 2}),
        ({"name": "elu"}, {"name": "elu", "alpha": 2}),
        (0.1, 0.1 + 1e-9),
        ("0.1", 0.1 + 1e-9),
        ("relu", None),
        (True, 1),
        (0, False),
        ("1", True),
        ("1", 1),
        ("1.10", "1.1"),
        (2**53, 2**53 + 1),
    ):
        assert not same(one, other)
        assert not same(other, one)
        assert not Point({"a": other}).matches({"a": one})
    assert not Point({}).matches({"a": None})


def test_a_point_in_words_tells_values_that_look_alike_apart():
    points = [
        Point({"model.network": {"class_path": f"{name}.Net"}, "data.lag": "00:10"})
        for name in ("a", "b")
    ]
    write = printers(points)
    assert [point.in_words(text=write) for point in points] == [
        "network a.Net, lag 00:10",
        "network b.Net, lag 00:10",
    ]


def test_values_that_look_alike_are_written_in_full():
    alike = ["pkg.one:Unit", {"class_path": "pkg.two.Unit"}, 0.12345678, 0.12345679, "gelu"]
    text = printer(alike)
    assert [text(value) for value in alike] == [*map(in_full, alike[:4]), "gelu"]
    assert len({text(value) for value in alike}) == len(alike)
