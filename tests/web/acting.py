"""A browser without scripts: reads pages, and sends their forms."""

from __future__ import annotations

import shlex
from typing import Any

import click
import httpx

from holdfast.cli.program import program
from tests.web.reading import Element, read_page
from tests.web.serving import Web


def page(web: Web, path: str, user: str = "") -> Element:
    """Return a page, as a user sees it."""
    return read(web.get(path, headers=_headers(user)))


def read(response: httpx.Response) -> Element:
    assert response.status_code == 200, (response.status_code, response.text[:2000])
    return read_page(response.text)


def main(shown: Element) -> Element:
    """Return a page without its frame."""
    return shown.one("main")


def form_of(shown: Element, button: str) -> Element:
    """Return the form that a button sends, by its text or its label."""
    found = [each for each in shown.all("form") if any(_is_named(inner, button) for inner in each.all("button"))]
    found += [
        each
        for menu in shown.all("details")
        if any(_is_named(inner, button) for inner in menu.children if isinstance(inner, Element))
        for each in menu.all("form")
    ]
    assert len(found) == 1, f"{len(found)} forms of {button!r} among {shown.buttons()}"
    return found[0]


def _is_named(element: Element, name: str) -> bool:
    return name in (element.text, element.attributes.get("aria-label"))


def fields_of(form: Element) -> dict[str, str]:
    """Return what a form sends if nothing is changed."""
    found: dict[str, str] = {}
    for each in form.walk():
        name = each.attributes.get("name")
        if not name:
            continue
        if each.tag == "select":
            options = each.all("option")
            chosen = [option for option in options if "selected" in option.attributes] or options
            found[name] = chosen[0].attributes["value"]
        elif each.tag == "textarea":
            found[name] = each.text
        elif each.tag == "input" and (each.attributes.get("type") != "checkbox" or "checked" in each.attributes):
            found[name] = each.attributes.get("value", "")
    return found


def send(web: Web, path: str, button: str, user: str = "", **changes: str) -> httpx.Response:
    """Open a page, change fields of the form of a button, and send it; return the answer, without following it."""
    form = form_of(page(web, path, user), button)
    fields = {**fields_of(form), **changes}
    if form.attributes.get("method") != "post":
        return web.get(form.attributes["action"], params=fields, headers=_headers(user))
    headers = {**_headers(user), "Accept": "text/html", "Origin": web.url}
    return web.post(form.attributes["action"], data=fields, headers=headers)


def act(web: Web, path: str, button: str, user: str = "", **changes: str) -> Element:
    """Send a form, and return the page that follows."""
    response = send(web, path, button, user, **changes)
    assert response.status_code == 303, (response.status_code, response.text[:2000])
    return read(web.get(response.headers["location"], headers=_headers(user)))


def toast(shown: Element) -> str:
    """Return the message of a page."""
    return shown.one("div", "toasts").text


def rows(shown: Element, place: int = 0) -> list[list[str]]:
    """Return the texts of a table of a page."""
    return [[cell.text for cell in row.all("td")] for row in shown.all("tbody")[place].all("tr")]


def row_of(shown: Element, key: str) -> Element:
    [found] = [each for each in shown.all("tr") if each.attributes.get("data-key") == key]
    return found


def commands_of(shown: Element) -> list[str]:
    """Return the commands that a page shows, in all its menus."""
    return [each.one("code").text for each in shown.all("div", "cmd")]


def check_commands(shown: Element) -> None:
    """Check that the command line has the commands of a page, with their options; and that there are some."""
    found = commands_of(shown)
    assert found
    for line in found:
        words = shlex.split(line)
        assert words[0] in ("holdfast", "curl"), line
        if words[0] == "holdfast":
            _parse(program, words)


def _parse(command: click.Command, words: list[str]) -> None:
    context = command.make_context(words[0], words[1:])
    while isinstance(command, click.Group):
        name, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        assert name is not None
        command, context = inner, inner.make_context(name, rest, parent=context)


def _headers(user: str) -> dict[str, Any]:
    return {"x-user": user} if user else {}
