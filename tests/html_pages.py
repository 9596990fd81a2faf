"""Pages for browsers, as tests read them without one."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Page(HTMLParser):
    """The elements of a page, its text, and the text inside each kind of element."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts.setdefault(tag, []).append(data)

    def text(self, tag: str = "body") -> str:
        return " ".join(" ".join(self.texts.get(tag, [])).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def figures(self) -> Any:
        return json.loads(next(text for text in self.texts["script"] if text.startswith("[{")))
