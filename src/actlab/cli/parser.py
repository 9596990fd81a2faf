"""The parser of the arguments of a command."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from actlab.errors import ActlabError
from actlab.errors.messages import unknown

_EXAMPLES = "examples:"


class _Help(argparse.HelpFormatter):
    """Fill paragraphs, except the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLES):
            return text  # a command stays on its line
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser that raises `ActlabError` instead of printing its usage, and shows ``examples``."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), **options: Any
    ) -> None:
        if examples:
            options["epilog"] = "\n  ".join([_EXAMPLES, *examples])
        options.setdefault("formatter_class", _Help)
        super().__init__(*args, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = f"command of {self.prog}"
            if action.option_strings:
                kind = f"value of {action.option_strings[-1]}"
            raise unknown(kind, str(value), map(str, action.choices))

    def error(self, message: str) -> NoReturn:
        """Raise `ActlabError`."""
        raise ActlabError(f"{message}. See `{self.prog} --help`.")
