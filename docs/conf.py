"""The documentation site: README and CONTRIBUTING as they are, the API from docstrings."""

import importlib
from importlib.metadata import version as version_of

# Before autodoc imports our modules as a type checker would: some of these do not bear that.
_EARLY = ("torch", "pytorch_lightning", "torchmetrics", "datasets", "wandb", "wandb_workspaces.reports.v2")
for name in _EARLY:
    importlib.import_module(name)

project = "actlab"
version = release = version_of("actlab")
extensions = [
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_parser",
]
apidoc_modules = [
    {
        "path": "../src/actlab",
        "destination": "api",
        "separate_modules": True,
        "automodule_options": {"members", "show-inheritance"},
    }
]
html_theme = "furo"
html_title = "actlab"
default_role = "any"  # `name` is a name of ours, or text
autodoc_default_options = {"ignore-module-all": True}  # what packages export stands where it is defined
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["triton"]
myst_heading_anchors = 3
suppress_warnings = ["ref.any", "myst.xref_missing"]  # files of the repository are no pages
exclude_patterns = ["_build"]
