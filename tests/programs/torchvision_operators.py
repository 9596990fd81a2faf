"""Makes torchvision's operators where they are missing; prints which of them there are."""

import sys
from importlib import import_module
from pathlib import Path

import torch

from actlab.runtime import operators

case = sys.argv[1]
if case == "real":  # `import actlab` watches for it
    import_module("torchmetrics")
    import_module("torchvision.transforms.v2.functional")
else:
    if case == "loads":
        vars(torch.ops)["load_library"] = lambda path: None
    operators.define_operators(Path())
print(*(hasattr(torch.ops.torchvision, name) for name in operators.OPERATORS))
