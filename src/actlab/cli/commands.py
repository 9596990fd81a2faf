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
# How commands are resumed after Ctrl-C; a fit says it itself, as only it knows its folder.
RESUMED = dict.fromkeys(("study", "tune", "scoreboard"), "the same command resumes")
USAGE = """\
Compare activation functions with repeated seeds and statistical tests.

usage: actlab COMMAND …

  fit | validate | test | predict   one network:      actlab fit -c mnist_classifier \
--data.sample true
  study new | plan | status | run | show | report | clean | wandb | schema
                                    many runs:        actlab study run gelu_mnist_classifier --smoke
  check                             one activation:   actlab check ./mine.py:Mine
  tune                              its parameters:   actlab tune demo --activation elu \
--search alpha=0.1..3
  scoreboard                        rank over tasks:  actlab scoreboard --activation ./mine.py:Mine
  report                            all studies:      actlab report --runs-dir runs
  data list | fetch                 the data:         actlab data fetch twitter_pos
  activations                       a list of them:   actlab activations --plot activations.png

Each has --help. Files that ship with actlab may be named without their path.
"""
