"""The direction of dependence of CONTRIBUTING.md, from the imports; rules of every source file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from actlab.cli.commands import COMMANDS, FITS

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
# Room, or module outside rooms → what it may import, besides itself.
MAY_IMPORT = {
    "": {"runtime", "activations", "api", "tasks"},  # all but runtime lazily
    "errors": set(),
    "validation": {"errors"},
    "runtime": {"errors"},
    "storage": {"errors"},
    "random": {"errors"},
    "config": {"storage", "errors"},
    "networks": {"random", "validation", "errors"},  # they are given factories of activations
    "optim": {"validation", "errors"},
    "activations": {"random", "runtime", "storage", "validation", "errors"},
    "datamodules": {"config", "random", "storage", "validation", "errors"},
    "callbacks": {"config", "random", "runtime", "validation", "errors"},
    "tasks": {
        *(
            "activations",
            "networks",
            "optim",
            "config",
            "random",
            "runtime",
            "storage",
            "validation",
            "errors",
        ),
    },
    "probes": {"tasks", "random", "runtime", "validation", "errors"},
    "experiments": {
        "tasks",
        "callbacks",
        "activations",
        "config",
        "random",
        "runtime",
        "storage",
        "errors",
    },
    "stacking": {
        *("experiments", "tasks", "datamodules", "activations", "networks", "optim"),
        *("config", "random", "runtime", "storage", "errors"),
    },
    "studies": {"config", "runtime", "storage", "errors"},
    "analysis": {"studies", "config", "storage", "errors"},
    "reports": {"analysis", "studies", "activations", "config", "random", "storage", "errors"},
    "scoreboard": {"reports", "analysis", "studies", "config", "storage", "errors"},
    "stages": {"analysis", "studies", "config", "storage", "errors"},
    "checks": {
        *(
            "stages",
            "analysis",
            "reports",
            "studies",
            "stacking",
            "experiments",
            "tasks",
            "callbacks",
        ),
        *("datamodules", "activations", "config", "random", "runtime", "storage", "errors"),
    },
    "engines": {
        *("checks", "stages"),
        *("analysis", "studies", "stacking", "experiments", "probes", "tasks", "callbacks"),
        *("datamodules", "activations", "config", "random", "runtime", "storage", "errors"),
    },
    "cli": {
        *("engines", "checks", "stages", "scoreboard", "analysis", "reports", "studies"),
        *("experiments", "callbacks", "datamodules", "activations"),
        *("config", "random", "runtime", "storage", "errors"),
    },
    "api": {
        *("engines", "stages", "reports", "analysis", "studies", "config", "random", "storage"),
        *("validation", "errors"),
    },
    "__main__": {"cli", "engines", "runtime", "errors", ""},
}

# Other people's packages → the only parts that may import them.
ONLY_IN = {
    "wandb": {"reports.wandb"},
    "wandb_workspaces": {"reports.workspaces"},
    "torchaudio": {"datamodules.speech.audio"},
    "soundfile": {"datamodules.speech.recordings"},
    "torchvision": {"datamodules.photographs"},
    "matplotlib": {"reports.canvas"},
    "jinja2": {"reports.pages"},
    "ray": {"engines.cluster"},
}
LEARNING = {
    "torch",
    "torchmetrics",
    "pytorch_lightning",
    "lightning",
    "lightning_fabric",
    "datasets",
}
NUMBERS, YAML = {"numpy", "scipy", "pandas"}, {"yaml"}
# Part → other people's packages that it does without, so that it loads fast.
WITHOUT = {
    **dict.fromkeys(
        ["", "errors", "__main__", "cli.commands", "cli.environment"], LEARNING | NUMBERS | {"yaml"}
    ),
    **dict.fromkeys(["storage.resources", "runtime.signals"], LEARNING | NUMBERS | {"yaml"}),
    **dict.fromkeys(
        [
            "config.paths",
            "config.class_paths",
            "config.text",
            "config.metrics",
            "config.values",
            "config.labels",
        ],
        LEARNING | NUMBERS,
    ),
    **dict.fromkeys(
        ["config.identity", "config.metric_classes", "studies.plan", "studies.groups"],
        LEARNING | NUMBERS,
    ),
    **dict.fromkeys(["studies.reading", "studies.schema"], LEARNING | NUMBERS),
    **dict.fromkeys(
        [
            "storage.series",
            "storage.files",
            "storage.json_files",
            "studies",
            "analysis",
            "scoreboard",
        ],
        LEARNING,
    ),
    **dict.fromkeys(["activations", "networks", "optim", "random"], LEARNING - {"torch"}),
}


class Import(NamedTuple):
    """``part`` imports ``target``, a dotted module; ``from a import b`` may mean a or a.b."""

    part: str
    targets: tuple[str, ...]
    where: str


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def inside(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def part_of(module: str, parts=MAY_IMPORT) -> str | None:
    """The longest of ``parts`` that holds a module of actlab, which is named without actlab."""
    return max(
        (p for p in parts if (inside(module, p) if p else module == "")), key=len, default=None
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and under TYPE_CHECKING too."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    mine, name = module.removeprefix("actlab").removeprefix("."), path.relative_to(ROOT)
    for node in ast.walk(tree_of(path)):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(mine, (alias.name,), where) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            yield from (Import(mine, (f"{base}.{alias.name}", base), where) for alias in node.names)


def resolved(found: Import) -> str:
    """The module an import loads: for ``from a import b`` a.b if that is a module, else a."""
    return next((target for target in found.targets if target in MODULES), found.targets[-1])


MODULES = {module_of(path) for path in SOURCES}


@cache
def imports() -> list[Import]:
    """The imports of all sources, read when the first test asks."""
    return [found for path in SOURCES for found in imports_of(path)]


def test_every_command_has_a_main_and_a_parser():
    for name, module in COMMANDS.items():
        found = import_module(module)
        assert callable(found.main)
        assert name in FITS or callable(found.parser)


def test_there_is_something_to_check():
    assert len(SOURCES) > 10
    assert len(imports()) > 100
    assert CONFIGS
    assert any(
        found.part == "cli.fit" and resolved(found) == "actlab.cli.arguments" for found in imports()
    )


def test_modules_have_their_place_in_the_picture():
    names = [module.removeprefix("actlab").removeprefix(".") for module in MODULES]
    assert [name for name in names if part_of(name) is None] == [], (
        "say in MAY_IMPORT what they may import"
    )


def test_parts_import_only_what_lies_below_them():
    wrong = []
    for found in imports():
        target = resolved(found)
        if not inside(target, "actlab"):
            continue
        name = target.removeprefix("actlab").removeprefix(".")
        part = part_of(found.part)
        allowed: set[str] = set() if part is None else MAY_IMPORT[part] | {part}
        if not any(inside(name, other) if other else name == "" for other in allowed):
            wrong.append(f"{found.where}: {found.part} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_packages_are_imported_in_their_own_place_only():
    wrong = [
        f"{found.where}: {package}"
        for package, places in ONLY_IN.items()
        for found in imports()
        if inside(found.targets[-1], package)
        and not any(inside(found.part, part) for part in places)
    ]
    assert not wrong, wrong


def test_parts_do_without_what_they_need_not_load():
    wrong = [
        f"{found.where}: {found.part} may not import {found.targets[-1]}"
        for found in imports()
        if (part := part_of(found.part, WITHOUT)) is not None
        and found.targets[-1].partition(".")[0] in WITHOUT[part]
    ]
    assert not wrong, "\n".join(wrong)


LIGHT = sorted(
    f"actlab.{part}".strip(".") for part, without in WITHOUT.items() if "torch" in without
)
# They ask workers, which load the libraries
LIGHT += [
    "actlab.engines.running",
    "actlab.cli.study",
]


def test_import_loads_neither_torch_nor_lightning():
    """In one process, which names the first that loads a library; `actlab` loads no pandas."""
    heavy = LEARNING | ONLY_IN.keys()
    code = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module(name)
    print(name, *(({heavy} | ({NUMBERS} if name == "actlab" else set())) & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == LIGHT
    assert LIGHT[0] == "actlab"


Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(body: list[ast.stmt]) -> list[Named]:
    return [node for node in body if isinstance(node, Named) and not node.name.startswith("_")]


def public_nodes(tree: ast.Module) -> Iterator[tuple[str, ast.Module | Named]]:
    """The module, its public functions and classes, and the public methods of those."""
    yield "module", tree
    for node in public(tree.body):
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{method.name}", method) for method in public(node.body))


def test_everything_public_has_a_docstring():
    nodes = [(module_of(path), *found) for path in SOURCES for found in public_nodes(tree_of(path))]
    assert [(module, name) for module, name, node in nodes if not ast.get_docstring(node)] == []


def test_files_are_short_enough_to_read():
    lengths = {
        module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES
    }
    assert [name for name, length in lengths.items() if length > 550] == [], "split them by meaning"


def test_configs_open_with_what_they_are():
    assert [path for path in CONFIGS if not path.read_text(encoding="utf-8").startswith("# ")] == []
