"""The documentation site: pages in Markdown, the API from docstrings, tables from the program."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parent))
import generated

# Before autodoc imports our modules as a type checker would: some of these do not bear that.
_EARLY = (
    "torch",
    "pytorch_lightning",
    "torchmetrics",
    "datasets",
    "wandb",
    "wandb_workspaces.reports.v2",
)
for name in _EARLY:
    importlib.import_module(name)

project = "actlab"
copyright = "the actlab authors"
version = release = version_of("actlab")
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.intersphinx",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
]
myst_enable_extensions = ["colon_fence"]
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output are not copied
html_theme = "furo"
html_title = "actlab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
default_role = "any"  # `name` is a name of ours, or text
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
myst_heading_anchors = 3
smartquotes = False  # "--smoke" stays as it is typed
suppress_warnings = ["ref.any", "myst.xref_missing"]  # files of the repository are no pages
exclude_patterns = ["_build", "api"]  # api: of earlier versions

# Names of other libraries lead to their documentation. Without a network, an empty inventory
# replaces theirs, and the names stay plain text.
_LIBRARIES = {
    "torch": "https://docs.pytorch.org/docs/stable/",
    "lightning": "https://lightning.ai/docs/pytorch/stable/",
    "torchmetrics": "https://lightning.ai/docs/torchmetrics/stable/",
}
intersphinx_mapping = {name: (url, (None, "offline.inv")) for name, url in _LIBRARIES.items()}
intersphinx_disabled_reftypes = ["std:*"]  # a word such as `data` does not mean a page of torch
intersphinx_timeout = 5  # seconds
intersphinx_cache_limit = 0  # the next build asks again

# Files of the repository that are pages here.
_PAGES = {
    **{
        "CONTRIBUTING.md": "/contributing.md",
        "CHANGELOG.md": "/changes.md",
        "data/README.md": "/data.md",
    },
    **{"benchmarks/README.md": "/benchmarks.md", "results/README.md": "/results.md"},
    **{"results/claims.md": "/claims.md", "results/gates.md": "/gates.md"},
}
# Pages for browsers, which the site has as they are.
_SCOREBOARD = "results/scoreboard"
_SCOREBOARD_PAGES = ("index.html", "version_1/index.html")
_SCOREBOARD_LINK = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)*(?:results/scoreboard/)?((?:version_1/)?index\.html)\)"
)
_LINK = re.compile(r"\]\((?:\.\./)*((?:[\w-]+/)*[\w-]+\.md)(#[^)]*)?\)")


class Generated(SphinxDirective):
    """Part of the reference that `generated` writes as Markdown."""

    write = staticmethod(generated.study_file)

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the part."""
        self.env.note_dependency(generated.__file__)
        return self.parse_text_to_nodes(self.write(), allow_section_headings=True)


class Commands(Generated):
    """The commands with their options."""

    write = staticmethod(generated.commands)


def link_pages(app: Sphinx, *where: Any) -> None:
    """Let links to files of the repository lead to the pages that include these files."""
    content = where[-1]

    def page_of(link: re.Match[str]) -> str:
        study = re.fullmatch(r"results/(\w+)/README\.md", link[1])
        page = f"/results/{study[1]}.md" if study else _PAGES.get(link[1])
        return f"]({page}{link[2] or ''})" if page else link[0]

    content[0] = _LINK.sub(page_of, content[0])
    root = "../" * app.env.docname.count("/")
    content[0] = _SCOREBOARD_LINK.sub(rf'<a href="{root}{_SCOREBOARD}/\2">\1</a>', content[0])


def copy_scoreboard(app: Sphinx, _: Exception | None) -> None:
    """Put the scoreboard's pages for browsers into the site."""
    for page in _SCOREBOARD_PAGES:
        target = Path(app.outdir, _SCOREBOARD, page)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(app.srcdir).parent / _SCOREBOARD / page, target)


def keep_bars(_: Sphinx, *what: Any) -> None:
    """Let ``|k − 1|`` in a docstring be an absolute value, not a substitution."""
    lines = what[-1]
    lines[:] = [re.sub(r"\|(?=\S)([^|`]+)(?<=\S)\|", r"\\|\1\\|", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Register the directives, and the changes of links and docstrings."""
    app.add_directive("study-file", Generated)
    app.add_directive("commands", Commands)
    app.connect("source-read", link_pages)
    app.connect("include-read", link_pages)
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("build-finished", copy_scoreboard)
