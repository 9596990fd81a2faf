"""The picture of effects shows the numbers of the table that it is drawn from."""

from actlab.analysis import study_table
from kept_results import RESULTS, program

TABLE = RESULTS / "soi_mnist/table.json"


def test_effects_are_those_of_the_table():
    table = study_table.read(TABLE)

    effects = program("effects").effects_of(table)

    cells = [row.primary for row in table.rows if row.primary.paired.mean is not None]
    assert len(effects) == len(cells) > 1
    for effect in effects:
        (cell,) = [cell for cell in cells if 100 * cell.paired.mean == effect.mean]
        assert (effect.low, effect.high) == (100 * cell.paired.low, 100 * cell.paired.high)


def test_the_picture_has_a_row_for_each_effect(tmp_path):
    module = program("effects")
    table = study_table.read(TABLE)

    (ax,) = module.draw(table).axes
    module.main(str(TABLE), str(tmp_path / "effects.png"))

    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == [effect.label for effect in module.effects_of(table)]
    assert (tmp_path / "effects.png").stat().st_size > 1000
