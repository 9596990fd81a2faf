"""Who opens files: every reader goes through `files.regular`, and one function parses JSON."""

import ast
import os
from functools import cache
from pathlib import Path

import pytest

from actlab.storage.files import DamagedError, regular
from actlab.storage.json_files import checked, read_json, write_json
from actlab.studies.formats import Failure

ROOT = Path(__file__).parents[1] / "src"
SOURCES = sorted(ROOT.rglob("*.py"))
METHODS = {"read_text", "read_bytes", "open"}  # of paths
FUNCTIONS = {
    *(
        "read_csv",
        "read_parquet",
        "read_table",
        "read_schema",
        "ParquetFile",
        "read_feather",
        "pd.read_json",
    ),
    *(
        "SoundFile",
        "safe_open",
        "load_file",
        "ZipFile",
        "GzipFile",
        "netrc",
        "memmap",
        "fromfile",
        "loadtxt",
    ),
    *(
        "genfromtxt",
        "np.load",
        "torch.load",
        "Image.open",
        "gzip.open",
        "sf.read",
        "torchaudio.load",
        "imread",
    ),
    *("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree"),
}
APPROVED = {"regular", "io.BytesIO", "BytesIO", "io.StringIO"}
# Module → what it calls otherwise, each with its reason.
ALLOWED = {
    "storage.mappings": {
        "(path if piped and path.is_fifo() else regular(path)).open": "a path of the command line"
    },
    "storage.checkpoints": dict.fromkeys(
        ("torch.load", "zipfile.ZipFile"), "a path or an open file, checked in `read`"
    ),
    "datamodules.lines": {"gzip.open": "around a file that `regular` has passed"},
    "storage.series": {"pq.ParquetFile": "of bytes"},
    "tasks.restoring": {"fsspec.open": "a URL"},
    "runtime.machine": {"cpuinfo.read_text": "a file of the kernel"},
    "engines.training": {"run.folder.open": "of a RunFolder"},
}


@cache
def calls() -> list[tuple[str, ast.Call]]:
    found = []
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT / "actlab").with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [(module, node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return found


def writes(call: ast.Call) -> bool:
    """Whether a file is opened to be written: its mode is among the arguments."""
    modes = [
        a.value
        for a in (*call.args, *(k.value for k in call.keywords))
        if isinstance(a, ast.Constant)
    ]
    return any(str(mode)[:1] in ("w", "a", "x") for mode in modes) or "os.O_WRONLY" in ast.unparse(
        call
    )


def opened(call: ast.Call) -> ast.expr | None:
    """What a call reads; None where it reads no file by its path."""
    name = ast.unparse(call.func)
    if FUNCTIONS & {name, name.rpartition(".")[2]}:
        return call.args[0] if call.args else call
    if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS and not writes(call):
        return call.func.value
    return call.args[0] if name == "open" and not writes(call) else None


def test_every_reader_of_files_wraps_its_path_in_regular():
    """So a pipe or device in place of data, a record or a result is never opened."""
    wrong, found, used = [], 0, set()
    for module, call in calls():
        if (path := opened(call)) is None:
            continue
        name, inner = (
            ast.unparse(call.func),
            ast.unparse(path.func) if isinstance(path, ast.Call) else "",
        )
        if name in ALLOWED.get(module, {}):
            used.add((module, name))
        elif inner not in APPROVED:
            wrong.append(f"{module}:{call.lineno}: {ast.unparse(call)}")
        found += 1
    assert not wrong, "open regular(path) instead of path:\n" + "\n".join(wrong)
    assert found > 25
    assert used == {(module, name) for module, names in ALLOWED.items() for name in names}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("storage.json_files", ("json.load", "json.loads")),
        ("storage.paths", (".expanduser", "Path.home")),
    ],
)
def test_json_is_parsed_and_home_folders_are_looked_up_in_one_place(module, names):
    assert {m for m, call in calls() if ast.unparse(call.func).endswith(names)} == {module}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "socket"])
def test_only_regular_files_are_opened(tmp_path, kind):
    path, link = tmp_path / "x", tmp_path / "link"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        os.mknod(path, 0o140600)
    else:
        path.symlink_to("/dev/zero")
    link.symlink_to(path)
    for one in (path, link):
        with pytest.raises(OSError, match="not a regular file"):
            regular(one)
        with pytest.raises(DamagedError, match=r"is damaged \(not a regular file\)\. Delete it\."):
            read_json(one, dict, "Delete it.")


def test_a_link_to_a_regular_file_is_one(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1})
    (tmp_path / "link").symlink_to(tmp_path / "x.json")
    assert read_json(tmp_path / "link", dict[str, int], "") == {"a": 1}


@pytest.mark.parametrize(
    "text",
    ["", "[", "{]", "nul", "[" * 100_000, "\ufeff{}", "{} {}"],
    ids=lambda text: text[:12],
)
def test_what_is_not_json_is_damaged(tmp_path, text):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(DamagedError, match=r"x\.json is damaged \([^)]+\).*\. Delete it\."):
        read_json(tmp_path / "x.json", object, "Delete it.")


def test_types_are_checked_and_other_keys_are_kept():
    found = {"error": "none", "of a later version": [1, 2.5]}
    assert checked(found, Failure) is found
    with pytest.raises(ValueError, match=r"error: input should be a valid string, not 3"):
        checked({"error": 3}, Failure)
    with pytest.raises(ValueError, match=r"error: field required"):
        checked({}, Failure)


def test_a_text_that_no_file_can_hold_is_written_without_it(tmp_path):
    """Half a surrogate pair, as names of files have where they are not UTF-8."""
    write_json(tmp_path / "x.json", {"error": "caf\udce9"})
    assert read_json(tmp_path / "x.json", dict[str, str], "") == {"error": "caf?"}
