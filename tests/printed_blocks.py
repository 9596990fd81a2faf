"""What a page shows as output, compared with what is printed, or written again from it.

A block ``text`` after commands or a program shows what they print. Five rules say what may differ:

- ``…`` stands for any text;
- a number with a decimal point stands for any number: trained values and times depend on the
    processor;
- a verdict stands for any verdict on the same activation, for it follows from trained values;
- rows of a table, and verdicts of a line each, may have another order, which follows from them too;
- white space and the lengths of rules in tables are not compared.

All else is literal. A number that no processor changes belongs in a block ``pycon``, which doctest
compares.
"""

import re
from difflib import SequenceMatcher
from pathlib import Path

LEFT_OUT = "…"
OUTCOMES = "better|worse|equivalent|no significant difference"
VERDICT = re.compile(rf"^(.*?): (?:{OUTCOMES})\b(?s:.*?)[.{LEFT_OUT}]$", re.M)
SHORT = re.compile(rf"^(> |  )(\S.*?) +(?:{OUTCOMES})\b.*$", re.M)
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d,]*(?:\.\d+)+(?:e[+-]?\d+)?")
ANY_NUMBER = r"[+−-]?\d[\d,]*(?:\.\d+)*(?:e[+-]?\d+)?"
RULE = re.compile("─+")
UNTIMED = "costs are left out: other programs kept the machine busy"


def in_order(text: str) -> str:
    """The text, with the rows of each table and neighbouring short verdicts sorted by names."""
    lines: list[str] = []
    rows: list[str] = []
    in_table = False
    for line in text.splitlines():
        in_table = in_table and bool(line.strip()) and LEFT_OUT not in line
        if in_table or SHORT.match(line):
            rows.append(line)
            continue
        lines += sorted(rows, key=_name_of)
        rows = []
        lines.append(line)
        in_table = RULE.fullmatch(line.strip()) is not None
    return "\n".join([*lines, *sorted(rows, key=_name_of)])


def _name_of(row: str) -> str:
    return " ".join(row.removeprefix("> ").split())


def pattern_of(shown: str) -> str:
    """The regular expression of what a block allows, for text with single blanks as white space."""
    text = VERDICT.sub(rf"\1: {LEFT_OUT}", in_order(shown))
    text = SHORT.sub(rf"\1\2 {LEFT_OUT}", text)
    text = " ".join(NUMBER.sub("\0", RULE.sub("─", text)).split())
    pattern = ""
    for part in re.split(f"( ?{LEFT_OUT} ?|\0)", text):
        if LEFT_OUT in part:
            pattern += ".*"
        elif part == "\0":
            pattern += ANY_NUMBER
        else:
            pattern += re.escape(part)
    return pattern


def allows(shown: str, printed: str) -> bool:
    """Whether a block shows what is printed."""
    text = " ".join(RULE.sub("─", in_order(printed)).split())
    return re.fullmatch(pattern_of(shown), text) is not None


def refreshed(shown: str, printed: str) -> str:
    """What a block should show: its lines replaced by the most similar ones, between its ``…``."""
    lines, place = printed.strip("\n").splitlines(), 0
    new: list[str] = []
    parts = re.split(rf"^({LEFT_OUT})\n", shown, flags=re.M)
    for number, part in enumerate(parts):
        if part == LEFT_OUT or not part.strip():
            new += part.splitlines()
            continue

        # Find the first and last line of this part; at an end of the block it goes on to the end.
        wanted, rest = part.strip("\n").splitlines(), lines[place:]
        first = 0 if number == 0 else _most_similar(wanted[0], rest)
        last = _most_similar(wanted[-1], rest[first:]) + first
        if number == len(parts) - 1:
            last = len(rest) - 1
        new += [_cut(line, wanted) for line in rest[first : last + 1]]
        place += last + 1
    return "\n".join(line.rstrip() for line in new) + "\n"


def _most_similar(line: str, among: list[str]) -> int:
    return max(
        range(len(among)),
        key=lambda i: SequenceMatcher(None, line, among[i], autojunk=False).ratio(),
    )


def _cut(line: str, wanted: list[str]) -> str:
    """A printed line, cut where the line of the block in its place ends with ``…``."""
    closest = wanted[_most_similar(line, wanted)]
    sentences = closest.removesuffix(f" {LEFT_OUT}").count(". ") + 1
    if not closest.endswith(f" {LEFT_OUT}"):
        return line
    return ". ".join(line.split(". ")[:sentences]).removesuffix(".") + f". {LEFT_OUT}"


def rewrite(page: Path, shown: str, printed: str) -> None:
    """Write what is printed into the page, in place of a block's text."""
    text = page.read_text(encoding="utf-8")
    assert text.count(f"\n{shown}```") == 1, f"{page} shows this block more than once:\n{shown}"
    page.write_text(
        text.replace(f"\n{shown}```", f"\n{refreshed(shown, printed)}```"), encoding="utf-8"
    )
