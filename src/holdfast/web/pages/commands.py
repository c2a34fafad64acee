"""Commands behind the actions of pages: every action shows how it is done on a command line, and over the API."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
from starlette.requests import Request

from holdfast.names import DEFAULT_NAMESPACE
from holdfast.web.security.users import LOCAL, User

PROGRAM = "holdfast "


def command_line(command: str, *arguments: str, **options: Any) -> str:
    """Return a line of the command `holdfast`, quoted for a shell.

        command_line("cancel", id, reason="wrong", dependents=True)

    An option that is true is a flag; one that is None, false or empty is left out; a list repeats the option.
    """
    words = ["holdfast", *command.split(), *_options(options)]
    if any(each.startswith("-") for each in arguments):
        words.append("--")
    return " ".join(_quote(each) for each in [*words, *arguments])


def in_namespace(line: str, namespace: str) -> str:
    """Return a line of `holdfast` that acts in this namespace, wherever it is pasted."""
    if namespace == DEFAULT_NAMESPACE or not line.startswith(PROGRAM):
        return line
    return f"{PROGRAM}--namespace {_quote(namespace)} {line.removeprefix(PROGRAM)}"


def _options(options: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list | tuple) else (value,):
            if each is True:
                words.append(flag)
            elif each is not None and each is not False and each != "":
                words += [flag, str(each)]
    return words


def curl_line(request: Request, user: User, method: str, address: str, body: Any = None) -> str:
    """Return a line of `curl` that does what a form does. `address` is a path with the place of the application."""
    words = ["curl"]
    if method != "GET":
        words += ["-X", method]
    if user != LOCAL:
        words.append('-H "Authorization: Bearer $TOKEN"')  # the shell fills it in
    if body:
        words += ["--json", _quote(msgspec.json.encode(body).decode())]
    return " ".join([*words, _quote(f"{request.url.scheme}://{request.url.netloc}{address}")])


def _quote(text: str) -> str:
    """Quote a word for a shell. Invisible characters are escaped, so pasting it into a terminal is safe."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_escape, text))}'"


def _escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
