"""What the package imports is what it declares: dependencies, or the extra that a part needs."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Module that no declared distribution is named after → the distribution that has it.
PART_OF = {"PIL": "pillow", "yaml": "pyyaml", "lightning_fabric": "pytorch-lightning"}
NOT_OF_USERS = ("dev", "docs", "notebooks", "bench")
# Distribution that is named in no import of ours → why it is required.
NOT_IMPORTED = {
    "torchaudio": "loaded without its extension where that does not fit torch",
    "onnx": "torch.onnx.export imports it",
    "onnxscript": "torch.onnx.export imports it",
    "tensorboard": "Lightning's TensorBoardLogger imports it",
}


def names(requirements):
    found = [Requirement(text) for text in requirements]
    return {canonicalize_name(one.name) for one in found if one.name != "actlab"}


def imported():
    """The top-level modules that the sources import, those inside functions too."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    return {name.partition(".")[0] for name in found} - {"actlab"} - sys.stdlib_module_names


def test_each_import_is_of_a_declared_dependency_and_each_dependency_is_imported():
    extras = [text for key, texts in EXTRAS.items() if key not in NOT_OF_USERS for text in texts]
    found = {canonicalize_name(PART_OF.get(module, module)) for module in imported()}
    assert found | NOT_IMPORTED.keys() == names([*PROJECT["dependencies"], *extras])


def test_a_module_of_another_name_is_of_its_distribution():
    for module, name in PART_OF.items():
        assert name in {canonicalize_name(found) for found in packages_distributions()[module]}
