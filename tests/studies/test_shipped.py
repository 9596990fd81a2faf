"""Statements of the shipped studies: the primary column, and margins with their seeds."""

import json
import re
from pathlib import Path

import pytest
import yaml

from actlab.analysis import columns
from actlab.analysis.comparison import table_of
from actlab.analysis.power import pairs_to_detect
from actlab.analysis.results import load
from actlab.studies.reading import load as read
from actlab.studies.study_folder import StudyFolder

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "configs/studies").glob("*.yaml"))
KEPT = {path.parent.name for path in ROOT.glob("results/*/values.csv")}
# Of the data set
CLASSES = {
    "mnist": 10,
    "cifar100": 100,
    "cifar10": 10,
    "twitter": 25,
    "timit": 39,
    "letter": 26,
}
# The error of guessing the most frequent class, .8865 and .9553, and of equal classes as
# float32, both rounded down.
MOST_FREQUENT = {"board_mnist": 0.886, "fashion_mnist": 0.899, "board_tabular": 0.955}
REACH = re.compile(
    r"with (\d+) comparisons? it takes about (\d+) (?:seeds )?if differences have a standard "
    r"deviation of ([\d.]+)",
    re.I,
)


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_a_study_states_its_primary_column_and_for_a_margin_before_the_runs_the_seeds_it_takes(
    path, tmp_path
):
    """The seeds of the primary column, under the correction of its family.

    Margins of kept studies came after the runs; those of claims have no published difference beside
    them.
    """
    assert "primary" in yaml.safe_load(path.read_text(encoding="utf-8"))
    results = load(StudyFolder(read(str(path)), tmp_path))
    primary = columns.primary(results.study, results.planned)
    assert primary
    assert primary.ranked
    if path.stem in {*KEPT, "demo"} or path.stem.startswith("claim_") or primary.margin is None:
        return
    (found,) = (match for note in results.study.notes if (match := REACH.search(note)))
    comparisons, seeds = int(found[1]), int(found[2])
    assert comparisons == table_of(results).correction("primary").comparisons
    unit = 100 if primary.percent else 1
    assert seeds == pairs_to_detect(unit * primary.margin / float(found[3]), comparisons)


def test_every_study_says_what_guessing_gives():
    for path in STUDIES:
        study = read(str(path))
        column = next((c for c in study.table if c.get("ranked", True)), {"metric": ""})
        if column["metric"].endswith("/error"):
            data = json.dumps(study.blocks[0].base["data"]).lower()
            classes = next(number for words, number in CLASSES.items() if words in data)
            assert column["chance"] == pytest.approx(
                MOST_FREQUENT.get(path.stem, 1 - 1 / classes), abs=1e-4
            )
