"""Five hundred hostile strings, and a store with them in every field that programs and people can write."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import msgspec

from holdfast import Holdfast
from holdfast.constants import MAX_TAG, MAX_TAGS_PER_JOB
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease, LogBlock
from holdfast.store.store import Store
from tests.support.new_job import NewJob

COUNT = 500
MIB = 1 << 20
EXECUTOR = "node/one.0"
AT_ONCE = 20  # strings of a job

CORES = [
    "<script>pwn()</script>", "<img src=x onerror=pwn()>", "<svg onload=pwn()>", "<svg><script>pwn()</script></svg>",
    "<iframe srcdoc='<script>pwn()</script>'>", "<a href=javascript:pwn()>x</a>", "<base href=//evil.example>",
    "<form action=//evil.example><button>x", "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example>", "<style>*{display:none}</style>", "<object data=//evil.example>",
    "<embed src=//evil.example>", "<math><mtext><table><mglyph><style><img src=x onerror=pwn()>",
    "<noscript><p title='</noscript><img src=x onerror=pwn()>'>", "<template><img src=x onerror=pwn()></template>",
    "<textarea></textarea><img src=x onerror=pwn()>", "<details open ontoggle=pwn()>", "<video><source onerror=pwn()>",
    "<body onload=pwn()>", "<input autofocus onfocus=pwn()>", "<!--<img src=x onerror=pwn()>-->", "<![CDATA[<x>]]>",
    "<?xml version='1.0'?><x/>", "<animate onbegin=pwn() attributeName=x>", "<foreignObject><iframe>",
    "javascript:pwn()", "data:text/html,<script>pwn()</script>", "{{ 7 * 7 }}", "{% raw %}{{ cycler }}", "${7*7}",
    "<%= 7*7 %>", "#{7*7}", "&lt;script&gt;pwn()&lt;/script&gt;", "&#60;script&#62;", "&quot;><b>", "&nosuch;",
    "\x1b[31mred\x1b[0m", "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07", "\x1b[2J\x1b[H", "\r\nSet-Cookie: a=b",
    "\b\b\b", "\x9b31m", "\x7f", "\u202etxt.exe", "\u2066\u2067\u2069", "\u200f\u200e\u061c", "\u200b\u200d\ufeff",
    "\u2028\u2029", "\U000e0041\U000e007f", "%3Cscript%3E", "%00", "../../etc/passwd", "//evil.example/x",
    "=1+cmd|'/c'!A1", "'; DROP TABLE jobs; --", "__proto__", "\\u003cscript\\u003e", "\ufffd\ufffe", "a\u0300" * 30,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "null",
]  # fmt: skip
BEFORE = ["", '"', "'", ">", '">', "'>", "</title>", "</script>", "--></style>", "</pre></code>", "]]>", '" x="']
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MARK = re.compile(r"zq(\d+)qz")


def strings() -> list[str]:
    """Return hostile strings; each has a mark by which it is recognized where it is shown."""
    combined = itertools.chain(*([before + core for core in CORES] for before in BEFORE))
    return [f"zq{number}qz{text}" for number, text in zip(range(COUNT), combined, strict=False)]


def tags_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return those that tags can be."""
    short = [each for each in texts if len(each.encode()) <= MAX_TAG and not CONTROL.search(each)]
    return tuple(short[:MAX_TAGS_PER_JOB])


def fill(app: Holdfast, store: Store) -> list[str]:
    """Store jobs with the strings in all of their fields, and return the ids of those that have all fields."""
    texts, ids = strings(), []
    _fail_each(store, texts)
    for number, first in enumerate(range(0, len(texts), AT_ONCE)):
        ids.append(f"h-{number}")
        _put_everywhere(app, store, ids[-1], texts[first : first + AT_ONCE])
    ids += _put_large(store)
    app.cancel_all(queue="nobody", reason=texts[0])
    _end_and_wait(app, store, texts)
    return ids


def _fail_each(store: Store, texts: list[str]) -> None:
    """Store a job for each text that failed with it."""
    for place, text in enumerate(texts):
        store.run(
            commands.enqueue([NewJob(id=f"f-{place:03}", payload=_json({text: text}), queue="f", task="t", retries=0)])
        )
    for first in range(0, len(texts), 100):
        claimed = _claim(store, "f", 100)
        ends = [Finish(id, 1, Error(_failure(texts[first + place]), "group")) for place, id in enumerate(claimed)]
        store.run(commands.finish(EXECUTOR, ends))


_counter = itertools.count(1)


def _claim(store: Store, queue: str, limit: int = 1) -> list[str]:
    request = commands.claim_args([queue], counter=next(_counter), limit=limit)
    return [job.id for job in store.run(commands.claim(EXECUTOR, request)).jobs]


def _failure(text: str) -> bytes:
    return _json({"type": text, "message": text, "notes": [text], "traceback": text, "group": "group", "place": text})


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _put_everywhere(app: Holdfast, store: Store, id: str, texts: list[str]) -> None:
    """Store a job that runs: with the texts in its arguments, fields, notes, tags, log, progress and checkpoint; and in
    what another attempt left.
    """
    fields = {f"field{place}": text for place, text in enumerate(texts)}
    payload = _json({"list": texts, **{text: text for text in texts}})
    job = NewJob(id=id, payload=payload, queue="h", task="t", retries=5, backoff=1, tags=tags_of(texts), fields=fields)
    store.run(commands.enqueue([job]))
    _claim(store, "h")
    store.run(commands.finish(EXECUTOR, [Finish(id, 1, Error(_failure(texts[0]), "group", delay=0))]))
    _claim(store, "h")
    lease = Lease(EXECUTOR, id, 2)
    progress = _json({"progress": 0.5, "message": texts[1], "counts": {texts[2][:30]: 7}, "attempt": 2}).decode()
    store.run(commands.save(lease, payload, progress=progress, notes=texts[:5]))
    created = store.run(commands.get([id]))[0]["created"]  # type: ignore[index]
    store.run(commands.log([LogBlock(id, created, 2, 0, "\n".join(texts).encode())]))
    for text in texts[5:10]:
        app.note(id, text)


def _put_large(store: Store) -> list[str]:
    """Store a job with a mebibyte in all fields that may have one."""
    large = "<b>\u202e" * ((MIB - 100) // 6)  # a mebibyte in UTF-8
    job = NewJob(
        id="large", payload=_json({"x": large}), queue="large", task="t", retries=0, fields={"x": large[:2_700]}
    )
    store.run(commands.enqueue([job]))
    _claim(store, "large")
    store.run(commands.save(Lease(EXECUTOR, "large", 1), _json(large[: MIB // 25]), progress=large[:600]))
    store.run(commands.finish(EXECUTOR, [Finish("large", 1, Succeed(_json([large])))]))
    deep = b"[" * 5000 + b"]" * 5000
    store.run(commands.enqueue([NewJob(id="deep", payload=b'{"x": ' + deep + b"}", queue="deep", task="t")]))
    return ["large", "deep"]


def _end_and_wait(app: Holdfast, store: Store, texts: list[str]) -> None:
    """Store jobs that are cancelled, failed and released by somebody, with a reason."""
    for place, text in enumerate(texts[:9]):
        id = f"r-{place}"
        store.run(commands.enqueue([NewJob(id=id, payload=b"{}", queue="r", task="t")]))
        act = (commands.cancel, commands.fail)[place % 2]
        store.run(act([id], reason=text))
    store.run(commands.enqueue([NewJob(id="waits", payload=b"{}", queue="r", task="t", after=("h-0", "f-000"))]))
    app.tag_all([tags_of(texts)[3]], queue="r")
