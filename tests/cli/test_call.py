"""`holdfast call`: functions of the app's own Lua."""

from __future__ import annotations

import pytest

from tests.support.shells import Shell

LUA = """
holdfast.register('echo', function(...) return { ... } end)
holdfast.register('set', function(text) redis.call('SET', holdfast.key('a'), text) return text end)
holdfast.register('no', function() holdfast.refuse('sold_out', 'nothing left') end)
"""


@pytest.fixture
def extended(shell: Shell) -> Shell:
    (shell.folder / "shop.lua").write_text(LUA)
    shell.environ["HOLDFAST_EXTEND"] = "shop.lua"
    return shell


def test_arguments_are_json_or_text_and_the_value_is_json(extended: Shell) -> None:
    ended = extended("call", "echo", "3", "pen", '"3"', '{"a": [true]}', "a=b", "--", "-1")
    assert (ended.code, ended.out) == (0, '[3,"pen","3",{"a":[true]},"a=b",-1]\n')
    assert extended("call", "echo", "1", "--json").json == {"value": [1]}


def test_control_characters_do_not_reach_the_terminal(extended: Shell) -> None:
    assert extended("call", "echo", "\x1b[31mred").out == '["\\u001b[31mred"]\n'


def test_a_function_of_an_app(shell: Shell) -> None:
    (shell.folder / "own.lua").write_text(LUA)
    (shell.folder / "own_shop.py").write_text(
        "from pathlib import Path\nfrom holdfast import Holdfast\n"
        "jobs = Holdfast(extend=Path(__file__).with_name('own.lua'))\n"
    )
    ended = shell("call", "echo", "1", "--app", "own_shop")
    assert (ended.code, ended.out, ended.err) == (0, "[1]\n", "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("no",), 1, "nothing left"),
        (("set", "x", "--read-only"), 1, "rite commands are not allowed"),
        (("ecoh",), 3, "no Lua file of the app has registered a function ecoh"),
        (("a b",), 2, "a function must be 1 to 100 letters"),
        ((), 2, "Missing argument 'NAME'"),
        (("echo", "--app", "no_such_module"), 2, "module 'no_such_module' is neither in"),
    ],
)
def test_errors(extended: Shell, words: tuple[str, ...], code: int, message: str) -> None:
    ended = extended("call", *words)
    assert (ended.code, ended.out, message in ended.err) == (code, "", True), ended.err


def test_without_files_it_says_how_to_have_some(shell: Shell) -> None:
    ended = shell("call", "echo")
    assert (ended.code, "this app has no Lua of its own" in ended.err) == (2, True)
