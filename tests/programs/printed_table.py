"""Prints the table of a study: its file, an activation that joins it, and the folder of its runs are given."""

import sys
from pathlib import Path

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.reports import terminal
from actlab.studies import reading
from actlab.studies.study_folder import StudyFolder

study = reading.load(sys.argv[1], activations=[sys.argv[2]])
terminal.print_table(table_of(results.load(StudyFolder(study, Path(sys.argv[3])))))
