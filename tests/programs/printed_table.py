"""Prints the table of a study; arguments: its file, an activation to add, the folder of runs."""

import sys
from pathlib import Path

from actlab.analysis import results
from actlab.analysis.comparison import table_of
from actlab.reports import terminal
from actlab.studies import reading
from actlab.studies.study_folder import StudyFolder

study = reading.load(sys.argv[1], activations=[sys.argv[2]])
terminal.print_table(table_of(results.load(StudyFolder(study, Path(sys.argv[3])))))
