"""The sentences of pages and messages, and phrases in them that a reader has to decode.

``python tests/prose.py README.md docs/index.md`` prints the share of long sentences of each page.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LONG = 25  # words of a sentence that should be rare
LONGEST = 35  # words of any sentence

# Phrases, and what to write instead. These are plain English, and not found: "there is no" and "is
# no longer", "stands for" (a sign for a value), "the one or two", "embedded fonts" (in PDF files).
PHRASES = {
    r"(?<!\bthere )\b(?:is|are) no\b(?! longer\b)": "is not a",
    r"\bbut for\b": "except",
    r"\b(?:that|those) of\b": "repeat the noun",
    r"\bthe ones?\b(?! or two\b)": "repeat the noun",
    r"^What\b.*[.:]$": "name the thing",
    r"\b(?:is|are) of\b": "has, covers, comes from",
    r"^Where\b.*[.:]$": "If",
    r"\bbeside\b": "next to, in addition to",
    r"\b(?:stands?|speaks?|hangs?)\b(?! for\b)": "the subject is the reader or the program",
    r"(?<![\w.)\]])\.\d": "0.82",
    r"\b(?:whoever|somebody|a stranger|mine|yours)\b": "you, your",
    r"\b(?:leader)?board\b": "scoreboard",
    r"\bembedded\b(?! (?:fonts|truetype)\b)": "bundled",
    r"\bcomes? with actlab\b": "bundled",
    r"\bas given\b": "with default arguments",
    r"\bnats a byte\b": "nats per byte",
    r"\ba further look\b": "another look",
    r"\bfour times in five\b": "with 80 % power",
    r"\bas a family apart\b": "corrected separately",
    r"\btags of tweets\b": "part-of-speech tags",
    r"\btoday's networks\b": "transformers, PINNs, implicit networks",
    r"\blearnt parameters?\b": "trainable parameter",
    r"\b(?:foreign|another author's)\b": "third-party, user-defined",
    r"\bproducts of a route\b|\broutes? of products\b": "matmul backend",
    r"\btells? .{0,40}\bapart\b": "distinguish",
    r"\brefus(?:e|es|ed|al|ing)\b": "raise, reject",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\banew\b": "again, from scratch",
}
# Phrases of messages only, whose remedies begin with use, set, add, remove or pass.
PHRASES_OF_MESSAGES = {r"\bgiven?\b|\bgives\b": "use, set, add, remove, pass"}

ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|cf|vs|etc|al|approx|resp|Figs?|Secs?|App|Eqs?|pp?)\.")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
# Tables, quotations, HTML, directives with their options, and labels.
NO_PROSE = re.compile(r"\s*(?:\||>|<|:{3,}|:[\w-]+:|\(\w[\w-]*\)=)")


class Found(NamedTuple):
    """A sentence with its line, and what is wrong with it."""

    line: int
    sentence: str
    fault: str


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and headings of a page, each with its first line.

    Code blocks, tables, quotations and directives are left out.
    """
    fence = ""
    lines: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        opening = FENCE.match(line)
        heading = line.startswith("#")
        item = ITEM.match(line)
        ends = bool(fence or opening or heading or item) or not line.strip()
        if lines and (ends or NO_PROSE.match(line)):
            yield start, " ".join(lines)
            lines = []

        # Skip blocks of code, up to a fence at least as long as the first
        if opening and not fence:
            fence = opening[1]
        elif opening and opening[1].startswith(fence):
            fence = ""
        elif heading and not fence:
            yield number, line.lstrip("# ")
        elif line.strip() and not fence and not NO_PROSE.match(line):
            start = start if lines else number
            lines.append(line[item.end() if item else 0 :].strip())


def plain(paragraph: str) -> str:
    """Return a paragraph without code, quotations, pictures, and the targets of links."""
    text = re.sub(r"(`+).+?\1", "X", paragraph)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r'"[^"]*"|“[^”]*”', "X", text)
    return re.sub(r"\*+|(?<!\w)_+|_+(?!\w)", "", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of a plain paragraph."""
    text = ABBREVIATIONS.sub(lambda found: found[0].replace(".", "․"), text)
    parts = re.split(r"(?:(?<=[.!?])|(?<=[.!?][)”\"]))\s+", text)
    return [part.strip() for part in parts if part.strip()]


def words(sentence: str) -> int:
    """Return the number of words of a sentence; signs between them do not count."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def sentences_of_page(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a page, each with the first line of its paragraph."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    for line, paragraph in paragraphs(text):
        for sentence in sentences(plain(paragraph)):
            yield line, sentence


def faults(text: str, phrases: dict[str, str]) -> list[str]:
    """Return what is wrong with a sentence."""
    found = []
    for phrase, instead in phrases.items():
        match = re.search(phrase, text, re.IGNORECASE)
        if match:
            found.append(f"{match[0]!r}: write {instead}")
    if words(text) > LONGEST:
        found.append(f"{words(text)} words: write several sentences or a list")
    return found


def faults_of_page(text: str) -> list[Found]:
    """Return the faults of the sentences of a page."""
    return [
        Found(line, sentence, fault)
        for line, sentence in sentences_of_page(text)
        for fault in faults(sentence, PHRASES)
    ]


def strings(node: ast.AST) -> Iterator[str]:
    """Yield the strings of an expression, with ``X`` in place of formatted values."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [next(strings(part), "X") for part in node.values]
        yield "".join(parts)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield "".join([next(strings(side), "X") for side in (node.left, node.right)])
    elif not isinstance(node, ast.FormattedValue):
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def assigned(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield what a function assigns or adds to a variable."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield node.value


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of the errors that a file raises, each with its line.

    A variable in place of a text stands for all texts that its function assigns to it.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for node in ast.walk(function):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            for argument in node.exc.args:
                values = [argument]
                if isinstance(argument, ast.Name):
                    values = [*assigned(function, argument.id)]
                for value in values:
                    for text in strings(value):
                        yield value.lineno, text


def faults_of_messages(path: Path) -> list[Found]:
    """Return the faults of the messages of a file."""
    phrases = PHRASES | PHRASES_OF_MESSAGES
    found = {
        Found(line, sentence, fault)
        for line, text in messages(path)
        for sentence in sentences(plain(text))
        for fault in faults(sentence, phrases)
    }
    return sorted(found)


def share_of_long(text: str) -> tuple[int, int]:
    """Return how many sentences of a page have more than 25 words, and how many there are."""
    lengths = [words(sentence) for _, sentence in sentences_of_page(text)]
    return sum(length > LONG for length in lengths), len(lengths)


if __name__ == "__main__":
    for page in sys.argv[1:]:
        long, total = share_of_long(Path(page).read_text(encoding="utf-8"))
        print(f"{page}: {long} of {total} sentences have more than {LONG} words")
