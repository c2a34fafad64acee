"""Templates: what is written into them stays text, and what the user may not do is not offered."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from jinja2 import UndefinedError

import holdfast.web.pages
from holdfast.web.pages.rendering import environment

TEMPLATES = Path(holdfast.web.pages.__file__).parent / "templates"
HOSTILE = "<script>alert(1)</script>\"'\u202etxt.exe\x1b[31m\x00"


def _render(source: str, **variables: object) -> str:
    shared = {
        "url": lambda path: path, "here": "/queues?x=1&y=2", "may": lambda *_: True,
        "now": datetime(2026, 11, 16, 10, 42, 18, tzinfo=UTC),
    }  # fmt: skip
    return environment().from_string(source).render(shared | variables)


def test_text_is_escaped_and_its_invisible_characters_are_shown() -> None:
    assert _render("<p title='{{ text }}'>{{ text }}</p>", text=HOSTILE) == (
        "<p title='&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;\\u202etxt.exe\\x1b[31m\\x00'>"
        "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;\\u202etxt.exe\\x1b[31m\\x00</p>"
    )


def test_the_value_of_a_field_is_sent_back_as_it_is() -> None:
    assert _render('<input value="{{ text|verbatim }}">', text='\u202e<"') == '<input value="\u202e&lt;&#34;">'


def test_a_name_that_a_template_does_not_know_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        _render("{{ nothing }}")


def test_no_template_marks_text_as_safe_or_has_styles_and_scripts_of_its_own() -> None:
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        assert "|safe" not in text.replace(" ", ""), path
        assert " style=" not in text, path
        assert "<style" not in text, path
        assert text.count("<script") == text.count('<script type="module" src='), path
        assert " on" not in text or not any(f" on{event}=" in text for event in ("click", "load", "error", "submit")), (
            path
        )


ACTION = """{% import "parts/actions.html" as actions with context %}
{{ actions.button("Retry", "/jobs/a:retry", "Retried", fields={"tag": ["x", "y"]}, method="PUT", queue="mail") }}"""


def test_an_action_is_a_form_of_the_api_that_leads_back() -> None:
    form = _render(ACTION)
    assert '<form method="post" action="/api/v1/jobs/a:retry" data-act>' in form
    for field in ('"_method" value="PUT"', '"tag" value="x"', '"tag" value="y"', '"_message" value="Retried"'):
        assert f'<input type="hidden" name={field}>' in form
    assert '<input type="hidden" name="_next" value="/queues?x=1&amp;y=2">' in form


def test_an_action_is_left_out_without_the_right_to_it() -> None:
    asked = []

    def may(*right: object) -> bool:
        asked.append(right)
        return False

    assert _render(ACTION, may=may).strip() == ""
    assert asked == [("operator", "mail")]


TABLE = """{% import "parts/tables.html" as tables with context %}
{% call tables.table("Jobs", [("Job", ""), ("Since", "num", "descending", "/x"), ("Actions", "acts")], live="jobs") %}
{% call tables.row("a") %}{% call tables.cell("Job", "wide nolabel") %}<b>{{ name }}</b>{% endcall %}
{{ tables.count("Since", 1973, "/y") }}{{ tables.count("Failed", 0) }}{% endcall %}{% endcall %}"""


def test_a_table_says_its_roles_and_the_names_of_its_values() -> None:
    table = _render(TABLE, name="<x>")
    assert table.count('role="cell"') == 3
    assert (
        '<th scope="col" role="columnheader" class="num" aria-sort="descending"><a href="/x">Since ▾</a></th>' in table
    )
    assert '<tr role="row" data-key="a">' in table
    assert '<td role="cell" class="wide nolabel"><b>&lt;x&gt;</b></td>' in table
    assert '<td role="cell" class="num" data-label="Since"><a href="/y">1,973</a></td>' in table
    assert '<td role="cell" class="num zeros" data-label="Failed"><span class="zero">0</span></td>' in table


def test_a_time_has_its_exact_value_behind_it() -> None:
    source = '{% import "parts/values.html" as values with context %}{{ values.age(time) }}{{ values.age(none) }}'
    assert _render(source, time="2026-11-16T10:41:40Z") == (
        '<time datetime="2026-11-16T10:41:40.000Z" title="Mon 16 Nov 2026, 10:41:40.000 UTC" data-age="ago">'
        '38 s ago</time><span class="muted">never</span>'
    )
