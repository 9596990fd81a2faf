"""Tune α of ELU with Optuna on validation data, then compare the tuned ELU with α = 1 on fresh seeds.

The sweep reads validation losses only, and the comparison uses seeds that the sweep has not seen. So the tuned
value has no advantage from having been the best of several. Requires Optuna (``pip install 'actlab[tune]'``)::

    python examples/sweep_optuna.py

Each trial is a study of ELU and of ELU with the trial's α. All trials share one folder, so ELU is trained once.
The sampler is seeded: a second start proposes the same values of α, and actlab skips their finished runs.
"""

from __future__ import annotations

import optuna

import actlab

QUICK = True  # False: 20 trials of 5 seeds, then 15 fresh seeds, all with 15 epochs
TRIALS, SEEDS, FRESH_SEEDS = (3, "0-1", "100-107") if QUICK else (20, "0-4", "100-114")
RUNS = "runs/sweep_optuna"
SETTINGS = {"trainer.max_epochs": 1, "trainer.limit_train_batches": 20} if QUICK else {}


def run(activations: list[str | dict], seeds: str) -> actlab.StudyResults:
    """Run the demo study with some activations in place of its own."""
    settings = {**SETTINGS, "model.activation": activations}
    return actlab.run_study("demo", seeds=seeds, settings=settings, reference="elu", runs_dir=RUNS)


def validation_loss(trial: optuna.Trial) -> float:
    """Return the median over seeds of the lowest validation loss with the trial's α."""
    alpha = trial.suggest_float("alpha", 0.1, 3.0, log=True)
    results = run(["elu", {"name": "elu", "alpha": alpha}], SEEDS)
    return float(results.table["val/loss@best"].iloc[-1])


def main() -> None:
    """Run the sweep, then the comparison on fresh seeds, and print both."""
    sweep = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    sweep.optimize(validation_loss, n_trials=TRIALS)
    results = run(["elu", {"name": "elu", **sweep.best_params}], FRESH_SEEDS)
    for trial in sweep.trials:
        print(f"alpha {trial.params['alpha']:.3f}: validation loss {trial.value:.4f}")
    print(results.table[["activation", "runs", "test/error@last", "test/error@last difference"]])
    for verdict in results.verdicts:
        print("-", verdict.text)


if __name__ == "__main__":  # training processes import this file
    main()
