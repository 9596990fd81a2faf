"""The commands of ``actlab``: the module of each, and how it is resumed."""

FITS = ("fit", "validate", "test", "predict")
# The module of a command is imported only when the command is run
COMMANDS = {
    **dict.fromkeys(FITS, "actlab.cli.fit"),
    "study": "actlab.cli.study",
    "tune": "actlab.cli.tune",
    "scoreboard": "actlab.cli.scoreboard",
    "report": "actlab.cli.report",
    "data": "actlab.cli.data",
    "activations": "actlab.cli.activations",
    "check": "actlab.cli.check",
}
# Their worker processes load torch, so the command itself need not
WITH_WORKERS = ("study plan", "study run", "tune", "scoreboard", "check")
# How commands are resumed after Ctrl-C; a fit says it itself, as only it knows its
# folder.
RESUMED = dict.fromkeys(("study", "tune", "scoreboard"), "the same command resumes")
USAGE = """\
Compare activation functions with repeated seeds and statistical tests.

usage: actlab COMMAND …

compare activations:
  study        train and compare the runs of a study file
               (new, plan, status, run, show, report, clean, wandb, schema)
  scoreboard   rank your activation over several tasks
  tune         tune your activation, then compare it on fresh seeds
  check        measure properties of one activation in seconds
  activations  list or plot the registered activations
  report       write one page that lists all studies

train one network:
  fit          train
  validate     evaluate on validation data
  test         evaluate on test data
  predict      write a table of predictions

get data:
  data         list or download datasets

examples:
  actlab study run demo --activation ./my_activation.py:MyActivation
  actlab scoreboard --activation ./my_activation.py:MyActivation --data FOLDER
  actlab fit -c mnist_classifier --data.sample true

Use the names of bundled configs and studies, and paths for your own files. Each command has --help.
"""
