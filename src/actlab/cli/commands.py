"""The commands of ``actlab``, and which module has the ``main`` and the ``parser`` of each."""

FITS = ("fit", "validate", "test", "predict")
COMMANDS = {
    **dict.fromkeys(FITS, "actlab.cli.fit"),
    "study": "actlab.cli.study",
    "scoreboard": "actlab.cli.scoreboard",
    "report": "actlab.cli.report",
    "data": "actlab.cli.data",
    "activations": "actlab.cli.activations",
    "completion": "actlab.cli.completion",
}
USAGE = """\
usage: actlab COMMAND …

  fit | validate | test | predict   one network:  actlab fit -c mnist_classifier
      --products auto               float32 products by the faster library that is as exact, measured
  study plan | run | show | report | wandb | schema
                                    many runs:    actlab study run gelu_mnist_classifier --smoke
  scoreboard                        your unit:    actlab scoreboard --activation ./my_unit.py:MyUnit
  report                            all studies:  actlab report --runs-dir runs
  data list | fetch | check         the data:     actlab data check timit FOLDER
  activations                       the units:    actlab activations --plot units.png
  completion bash | zsh | fish      a script by which the shell completes what is typed

Each has --help. Files that travel with actlab may be named without their path.
"""
