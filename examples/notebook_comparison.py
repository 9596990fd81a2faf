"""Compare GELU, ELU and ReLU on handwritten digits, as in a notebook: train, show, load networks.

The file is in percent format, which VS Code, Spyder and Jupytext open as cells. As a script it runs
all cells::

    python examples/notebook_comparison.py
"""

# %%
from pathlib import Path

import pandas as pd
import torch

import actlab
from actlab.datamodules import MNISTDataModule
from actlab.tasks import ClassificationTask

QUICK = True  # False: 15 epochs of 4,000 digits with 3 seeds

# %% [markdown] ## Train
#
# The same cell continues a study that was stopped, and skips finished runs. With `jobs=1` and
# activations of actlab no other process imports this file, so the cell requires no `if __name__ ==
# "__main__":`.

# %%
study = actlab.load_study(
    "demo", settings={"model.activation": ["gelu", "elu", "relu"]}, smoke=QUICK
)
results = actlab.run_study(study, jobs=1)

# %% [markdown] ## Table and figure
#
# `results.table` has a row for each activation, `results.values` a row for each run. Both are data
# frames; a notebook shows them without `print`.

# %%
print(results.table[["activation", "runs", "test/error@last", "val/loss@best"]])

# %%
print(results.values[["model.activation", "seed", "test/error@last"]])

# %%
results.figures["curves"].savefig("curves.png")

# %% [markdown] ## Inside the networks
#
# A checkpoint holds the config of its run, so the task is rebuilt without further arguments.
# `task.sites` maps names of modules to activation modules.


# %%
def trained(activation: str) -> ClassificationTask:
    """Return the trained task of the run with seed 0."""
    run = next(r for r in study.runs() if r.seed == 0 and r.point["model.activation"] == activation)
    path = Path("runs") / study.name / run.id / "checkpoints" / "last.ckpt"
    return ClassificationTask.load_from_checkpoint(path).eval()


print("activations of the ELU network:", ", ".join(trained("elu").sites))

# %% According to the ELU paper, mean activations near zero speed up training. These are means over
# 1,000 digits.
data = MNISTDataModule(sample=True)
data.setup("fit")
batch = next(iter(data.val_dataloader()))


def layer_means(task: ClassificationTask) -> dict[str, float]:
    """Return the mean of the outputs of each activation module."""
    means = {}
    for name, site in task.sites.items():
        site.register_forward_hook(
            lambda *seen, name=name: means.update({name: seen[-1].mean().item()})
        )
    with torch.no_grad():
        task.observe(batch)
    return means


means = pd.DataFrame({name: layer_means(trained(name)) for name in ("gelu", "elu", "relu")})
print(means.rename_axis("layer").round(3))
