"""Each activation of a study is tried before training."""

from actlab import experiments
from actlab.checks import activation_trial
from actlab.studies import reading


def test_an_activation_is_tried_with_tasks_of_one_build(monkeypatch):
    runs = reading.load("demo", smoke=True, overrides=["model.activation=[relu, elu]"]).runs()
    activation_trial.prepare(runs)
    built, build = [], experiments.build
    monkeypatch.setattr(experiments, "build", lambda config: built.append(config) or build(config))
    faults, facts = activation_trial.try_activations(runs, {}, lambda *_: None)
    assert [*faults.values()] == [None, None]
    assert len(built) == 1
    facts.of(runs[0])
    assert len(built) == 1
