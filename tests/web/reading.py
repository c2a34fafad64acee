"""Pages as people read them, and what is in their HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

VOID = frozenset({"input", "meta", "link", "br", "img", "hr"})


class Element:
    """An element of a page."""

    def __init__(self, tag: str, attributes: dict[str, str], parent: Element | None) -> None:
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children: list[Element | str] = []

    def __repr__(self) -> str:
        return f"<{self.tag} {self.attributes}>"

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def pieces(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, Element):
                yield from child.pieces()
            else:
                yield child

    @property
    def text(self) -> str:
        """The text in it, with single spaces."""
        return re.sub(r"\s+", " ", "".join(self.pieces())).strip()

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def all(self, tag: str, kind: str = "") -> list[Element]:
        return [each for each in self.walk() if each.tag == tag and (not kind or kind in each.classes)]

    def one(self, tag: str, kind: str = "") -> Element:
        found = self.all(tag, kind)
        assert len(found) == 1, f"{len(found)} elements {tag}.{kind}"
        return found[0]

    def buttons(self) -> list[str]:
        """The words on what can be clicked to act."""
        found = [each for each in self.walk() if each.tag in ("button", "summary") or "btn" in each.classes]
        return [each.text for each in found if each.text]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.current = Element("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self.current)
        self.current.children.append(element)
        if tag not in VOID:
            self.current = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.current.children.append(Element(tag, {name: value or "" for name, value in attrs}, self.current))

    def handle_endtag(self, tag: str) -> None:
        assert self.current.tag == tag, f"</{tag}> ends {self.current!r}"
        assert self.current.parent is not None
        self.current = self.current.parent

    def handle_data(self, data: str) -> None:
        self.current.children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:100]!r}")


def without_namespace(text: str) -> str:
    """Return a text whose commands do not name the random namespace of a test."""
    return re.sub(r"holdfast --namespace t[0-9a-f]{12} ", "holdfast ", text)


def read_page(html: str) -> Element:
    """Return the elements of a page, which must be well nested; commands do not name the namespace of the test."""
    reader = _Reader()
    reader.feed(without_namespace(html))
    reader.close()
    assert reader.current is reader.root, f"{reader.current!r} has no end"
    return reader.root
