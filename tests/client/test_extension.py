"""The app's own Lua: functions that run in the server, atomically with those of the library."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import FunctionNotFound, Holdfast, Invalid, JobExists, LuaFailed, Refused, StoreFull, TooBig
from holdfast.items import Item, read_token
from holdfast.store import commands
from holdfast.store.library import library
from holdfast.task.task import Task
from tests.support.servers import redis_7, running_server
from tests.support.sync_and_async import FACES, Ask

SHOP = """
local function stock(article) return holdfast.key('stock/' .. article) end

-- Take articles from the stock, and have them shipped.
holdfast.register('order_paid', function(article, count, ship)
  local left = tonumber(redis.call('GET', stock(article)) or 0)
  if left < count then holdfast.refuse('sold_out', article .. ': only ' .. left .. ' left') end
  redis.call('DECRBY', stock(article), count)
  local id, created = holdfast.enqueue(ship)
  return { id = id, created = created, left = left - count }
end)

holdfast.register('left', function(article) return tonumber(redis.call('GET', stock(article)) or 0) end)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.lua"
    path.write_text(SHOP)
    return path


@pytest.fixture
def app(server_url: str, namespace: str, shop: Path) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace, extend=shop)
    yield made
    made.close()


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, app: Holdfast) -> Ask:
    return FACES[request.param](app)


@pytest.fixture
def ship(app: Holdfast) -> Task[[str], str]:
    @app.task(name="ship", queue="mail", tags=["order"])
    def ship(article: str) -> str:
        return article

    return ship


@pytest.fixture
def server(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url, decode_responses=True) as client:
        yield client


Own = Callable[[str], str]


@pytest.fixture
def own(namespace: str) -> Own:
    return lambda name: f"hf:{{{namespace}}}:own:{name}"


def test_a_function_writes_its_own_keys_and_enqueues_in_one_step(
    app: Holdfast, ask: Ask, ship: Task[[str], str], server: redis.Redis, own: Own
) -> None:
    server.set(own("stock/pen"), 5)
    call = ship.bind("pen")
    assert ask("call", "order_paid", "pen", 2, call) == {"id": call.id, "created": True, "left": 3}
    job = app.get(call.id)
    assert (job.state, job.queue, job.task, job.tags) == ("waiting", "mail", "ship", ("order",))
    assert server.get(own("stock/pen")) == "3"
    assert ask("query", "left", "pen") == 3


def test_a_refusal_changes_nothing_and_has_a_reason(
    app: Holdfast, ask: Ask, ship: Task[[str], str], server: redis.Redis, own: Own
) -> None:
    server.set(own("stock/pen"), 1)
    with pytest.raises(Refused, match=r"^pen: only 1 left$") as refused:
        ask("call", "order_paid", "pen", 2, ship.bind("pen"))
    assert refused.value.reason == "sold_out"
    assert (server.get(own("stock/pen")), app.count(queue="mail")) == ("1", 0)


@pytest.fixture
def app_with(server_url: str, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Holdfast]]:
    """Make apps with Lua of their own, on the same namespace."""
    with ExitStack() as stack:

        def make(*texts: str, url: str = server_url) -> Holdfast:
            paths = []
            for number, text in enumerate(texts):
                paths.append(tmp_path / f"own{number}.lua")
                paths[-1].write_text(text)
            app = Holdfast(url, namespace=namespace, extend=paths)
            app.extension.library  # noqa: B018, read now: the next app has files of the same names
            stack.callback(app.close)
            return app

        yield make


Make = Callable[..., Holdfast]


def function(body: str) -> str:
    return f"holdfast.register('f', function(...)\n{body}\nend)"


# Arguments and values


@pytest.mark.parametrize(
    "value",
    [1, -7, 2.5, "text", "née", "", True, False, None, [1, [2, "x"]], {"a": {"b": [None, 1]}}, 2**46, "a\nb\x00"],
)
def test_values_of_json_come_back_as_they_were(app_with: Make, value: Any) -> None:
    assert app_with(function("return (...)")).call("f", value) == value


def test_arguments_arrive_by_position_and_none_is_nil(app_with: Make) -> None:
    app = app_with(function("local a, b, c = ... return { select('#', ...), a, b == nil, c }"))
    assert app.call("f", "x", None, "y") == [3, "x", True, "y"]
    assert app.call("f", "x", None) == [2, "x", True]
    assert app.call("f") == [0, None, True] or app.call("f") == [0]


@pytest.mark.parametrize(
    "value", [2**53 + 1, -(2**60), math.nan, -math.inf, {"holdfast.call": 1}, {"holdfast.item": []}, object()]
)
def test_values_that_lua_cannot_have_are_refused(app_with: Make, value: Any) -> None:
    with pytest.raises(Invalid):
        app_with(function("return 1")).call("f", [value])


def test_a_value_that_is_nested_too_deeply_is_refused(app_with: Make) -> None:
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    with pytest.raises(Invalid, match="nested more than 100"):
        app_with(function("return 1")).call("f", value)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("return holdfast.register", LuaFailed, "returned what cannot be JSON"),
        ("return 0/0", LuaFailed, "returned what cannot be JSON"),
        ("return string.rep('x', 70000)", TooBig, "70002 bytes"),
        ("local t = {} t.t = t return t", LuaFailed, "cannot be JSON"),
        (r"return '\255'", LuaFailed, "text that is not UTF-8"),
    ],
)
def test_values_that_cannot_be_returned_are_refused(
    app_with: Make, body: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        app_with(function(body)).call("f")


# Errors


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("local x = = 1", r"own0\.lua:1: unexpected symbol near '='"),
        ("\n\nfoo()", r"own0\.lua:3: .*nonexistent global variable 'foo'"),
        ("\nx = 1", r"own0\.lua:2: Attempt to modify a readonly table"),
        ("\nholdfast.enqueue({})", r"own0\.lua:2: holdfast.enqueue can only be called by a function that is running"),
        ("holdfast.version = 2", r"own0\.lua:1: holdfast.version cannot be set"),
        ("local x = holdfast.dequeue", r"own0\.lua:1: there is no holdfast.dequeue"),
        ("holdfast.register('g')", r"own0\.lua:1: holdfast.register needs a name and a function"),
        (
            "local function f() end\nholdfast.register('f', f)\nholdfast.register('f', f)",
            r"own0\.lua:3: .* registered twice",
        ),
        ("holdfast.register('a b', function() end)", "a function must be 1 to 100"),
        ("local function f() return core end f()", r"own0\.lua:1: .*nonexistent global variable 'core'"),
        ("key.meta = nil", r"own0\.lua:1: .*nonexistent global variable 'key'"),
        ("string.format = nil", r"own0\.lua:1: Attempt to modify a readonly table"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line_and_affects_nothing_else(
    app_with: Make, text: str, words: str
) -> None:
    app = app_with(text)
    for _ in range(2):
        with pytest.raises((LuaFailed, Invalid), match=words):
            app.call("f")
    assert app.count() == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("error('no such thing')", r"^own0\.lua:2: no such thing"),
        ("local x = nil; return x.y", r"^own0\.lua:2: attempt to index local 'x'"),
        (
            "redis.call('SET', holdfast.key('a'), 1)\nredis.call('HGET', holdfast.key('a'), 'f')",
            r"^own0\.lua:3: WRONGTYPE",
        ),
        ("error({ code = 5 })", r"^own0\.lua:2: table"),
        ("error({ refusal = {} })", r"^own0\.lua:2: table"),
        ("error({ refusal = 'no code' })", r"^own0\.lua:2: table"),
        ("error(setmetatable({}, { __index = function() error('x') end }))", r"^own0\.lua:2: table"),
        ("error()", r"^own0\.lua:2: nil"),
    ],
)
def test_an_error_names_file_and_line(app_with: Make, body: str, words: str) -> None:
    with pytest.raises(LuaFailed, match=words):
        app_with(function(body)).call("f")


def test_the_second_file_is_named_too(app_with: Make) -> None:
    app = app_with("holdfast.register('one', function() return 1 end)", function("\nerror('x')"))
    assert app.call("one") == 1
    with pytest.raises(LuaFailed, match=r"^own1\.lua:3: x"):
        app.call("f")


@pytest.mark.parametrize("name", ["g", "F", "f.g"])
def test_an_unknown_function_is_named(app_with: Make, name: str) -> None:
    with pytest.raises(FunctionNotFound, match=f"registered a function {name}"):
        app_with(function("return 1")).call(name)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("redis.setresp(3)", "there is no redis.setresp"),  # the library reads replies of RESP2
        ("redis.set_repl(redis.REPL_NONE)", "there is no redis.set_repl"),
        ("server.setresp(3)", "there is no redis.setresp"),
        ("cjson.decode_max_depth(1)", "there is no cjson.decode_max_depth"),  # of all libraries of the server
        ("cjson.encode_number_precision(3)", "there is no cjson.encode_number_precision"),
        ("redis.call = error", "redis.call cannot be set"),
    ],
)
def test_a_function_cannot_change_how_the_library_works(app_with: Make, body: str, words: str) -> None:
    app = app_with(function(body))
    with pytest.raises(LuaFailed, match=rf"^own0\.lua:2: {words}"):
        app.call("f")
    assert app.enqueue(app.task(name="t", tags=["x"])(_ship).bind("a")).refresh().tags == ("x",)


def test_a_function_has_the_rest_of_redis_and_cjson(app_with: Make) -> None:
    body = (
        "return { cjson.decode('[1]'), cjson.encode({ a = cjson.null }), redis.sha1hex('a'), redis.pcall('TIME')[1] }"
    )
    numbers, text, digest, time = app_with(function(body)).call("f")
    assert (numbers, text, digest[:8], time.isdigit()) == ([1], '{"a":null}', "86f7e437", True)


@pytest.mark.parametrize(
    ("body", "words"),
    [("holdfast.cancel('a', 5)", "options of cancel must be a table, not number"), ("holdfast.enqueue()", "the jobs")],
)
def test_arguments_of_the_library_are_checked(app_with: Make, body: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        app_with(function(body)).call("f")


def test_an_app_without_lua_says_how_to_have_some(server_url: str, namespace: str) -> None:
    with pytest.raises(Invalid, match="create it with Holdfast"):
        Holdfast(server_url, namespace=namespace).call("f")


def test_what_a_function_enqueued_before_it_failed_is_whole_and_announced(app_with: Make) -> None:
    app = app_with(
        function(
            "holdfast.enqueue({ task = 't', queue = 'q', payload = '{}', id = 'a', tags = { 'x' } })\nerror('late')"
        )
    )
    with pytest.raises(LuaFailed, match=r"own0\.lua:3: late"):
        app.call("f")
    assert (app.get("a").state, app.count(queue="q"), app.count(tag="x")) == ("waiting", 1, 1)
    assert [event.type for event in app.events()] == ["enqueued"]
    assert app.tags() == {"x": 1}


def test_a_function_may_catch_what_the_library_refuses(app_with: Make) -> None:
    app = app_with(
        function(
            "local done, fault = pcall(holdfast.enqueue, { task = 't', queue = 'no queue', payload = '{}' })\n"
            "local id = holdfast.enqueue({ task = 't', queue = 'q', payload = '{}' })\n"
            "return { done, fault.refusal, id }"
        )
    )
    done, refusal, id = app.call("f")
    assert (done, refusal.split()[0]) == (False, "INVALID")
    assert [job.id for job in app.list()] == [id]


def test_a_refusal_of_the_library_is_that_error(app_with: Make) -> None:
    app = app_with(function("holdfast.enqueue((...), { on_exists = 'error' })"))
    call = app.task(name="t")(_ship).bind("a")
    app.enqueue(call)
    with pytest.raises(JobExists):
        app.call("f", call)


# What a function may do


def _ship(article: str) -> str:
    return article


def test_jobs_are_enqueued_with_options_in_any_number(app_with: Make) -> None:
    app = app_with(
        "holdfast.register('one', function(call, options) return holdfast.enqueue(call, options) end)\n"
        "holdfast.register('all', function(calls) return { holdfast.enqueue_all(calls) } end)"
    )
    ship = app.task(name="ship", delay="1h", priority=3)(_ship)
    id = app.call("one", ship.bind("a"), {"queue": "other", "priority": -1, "at": 0, "tags": ["vip"]})
    job = app.get(id)
    assert (job.state, job.queue, job.priority, job.tags) == ("waiting", "other", -1, ("vip",))
    calls = [ship.bind(str(number)) for number in range(100)]
    ids, stored = app.call("all", calls)
    assert (ids, stored) == ([call.id for call in calls], [True] * 100)
    assert app.call("all", calls[:2]) == [ids[:2], [False, False]]
    assert {job.state for job in app.list(queue="default")} == {"scheduled"}
    with pytest.raises(Invalid, match="unknown option of a job: colour"):
        app.call("one", ship.bind("a"), {"colour": 1})


def test_a_call_keeps_its_scope_and_its_unique_key(app_with: Make) -> None:
    app = app_with(function("local id, stored = holdfast.enqueue((...)) return { id, stored }"))
    ship = app.task(name="ship", unique="one", scope="/a/b")(_ship)
    first = app.call("f", ship.bind("a"))
    assert first[1] is True
    assert app.call("f", ship.bind("b")) == [first[0], False]
    assert app.get(first[0]).scope == "/a/b"


def test_jobs_are_cancelled_moved_noted_read_and_counted(app_with: Make) -> None:
    app = app_with(
        function(
            "local id = ...\n"
            "local before = holdfast.count('q', 'waiting')\n"
            "local moved = holdfast.move(id, { queue = 'other' })\n"
            "holdfast.note(id, 'by lua')\n"
            "local tagged = holdfast.tag(id, { tags = { 'x' } })\n"
            "local job = holdfast.get(id)\n"
            "local cancelled = holdfast.cancel(id, { reason = 'why' })\n"
            "local retried = holdfast.retry(id)\n"
            "local failed = holdfast.fail(id, { reason = 'bad', group = 'g' })\n"
            "return { before, moved, tagged, job.queue, job.state, job.tags, cancelled, retried, failed,"
            " holdfast.cancel('none'), holdfast.get('none') == nil, holdfast.delete(id) }"
        )
    )
    app.enqueue(app.task(name="t", queue="q")(_ship).bind("a").options(id="a"))
    assert app.call("f", "a") == [
        1, "waiting", "OK", "other", "waiting", ["x"], "cancelled", "waiting", "failed", "NOTFOUND", True, "OK",
    ]  # fmt: skip
    assert app.count() == 0


def test_an_item_that_the_caller_holds_is_completed_with_the_keys_of_the_app(app_with: Make) -> None:
    app = app_with(
        "holdfast.register('charged', function(item, amount)\n"
        "  if not holdfast.complete(item, 'charged') then holdfast.refuse('lost') end\n"
        "  return redis.call('INCRBY', holdfast.key('total'), amount)\nend)"
    )
    with app.items("bills") as items:
        jobs = [items.put(b"1"), items.put(b"2"), items.put(b"3")]
        with items.claim() as item:
            assert app.call("charged", item, 5) == 5
        held = items.claim()
        assert isinstance(held, Item)
        detached = held.detach()
        assert app.call("charged", read_token(detached), 7) == 12
        with pytest.raises(Refused) as refused:
            app.call("charged", read_token(detached), 7)
        assert refused.value.reason == str(refused.value) == "lost"
        assert [job.refresh().state for job in jobs] == ["succeeded", "succeeded", "waiting"]
        assert jobs[0].refresh().result_bytes == b"charged"
        with pytest.raises(Invalid, match="expected an item that the caller has passed"):
            app.call("charged", {"id": jobs[2].id}, 1)


def test_time_and_version_are_known(app_with: Make) -> None:
    app = app_with(function("return { holdfast.now(), holdfast.version, holdfast.key('a') }"))
    now, version, key = app.call("f")
    assert now > 1_700_000_000_000
    assert (version, key) == (1, f"hf:{{{app.address.namespace}}}:own:a")


def test_a_query_cannot_write_and_is_answered_by_a_full_server(app_with: Make) -> None:
    text = (
        "holdfast.register('set', function() redis.call('SET', holdfast.key('a'), 1) end)\n"
        "holdfast.register('get', function() return redis.call('GET', holdfast.key('a')) end)"
    )
    with running_server() as url, redis.Redis.from_url(url) as client:
        app = app_with(text, url=url)
        with pytest.raises(LuaFailed, match=r"own0\.lua:1: .*[Ww]rite commands are not allowed"):
            app.query("set")
        app.call("set")
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            app.call("set")
        assert app.query("get") == "1"


def test_a_query_cannot_enqueue(app_with: Make) -> None:
    app = app_with(function("return holdfast.enqueue({ task = 't', queue = 'q', payload = '{}' })"))
    with pytest.raises(Invalid, match="a query cannot enqueue jobs; use call"):
        app.query("f")


# Repetition, releases, servers


def test_a_repeated_call_returns_the_same_and_does_not_run_again(app_with: Make) -> None:
    app = app_with(
        function(
            "local n = redis.call('INCR', holdfast.key('n'))\n"
            "return { n, (holdfast.enqueue({ task = 't', queue = 'q', payload = '{}' })) }"
        )
    )
    command = commands.call(app.extension.library, "f", [])
    first = app.store.run(command)
    assert app.store.run(command) == first
    assert first.value[1] == f"{command.args['token']}-1"
    assert app.count() == 1
    assert app.call("f")[0] == 2


def test_apps_with_other_files_and_one_without_share_a_namespace(
    app_with: Make, server_url: str, namespace: str, server: redis.Redis
) -> None:
    one, two = app_with(function("return 'one'")), app_with(function("return 'two'"))
    plain = Holdfast(server_url, namespace=namespace)
    job = plain.enqueue(plain.task(name="t")(_ship).bind("a"))
    for _ in range(2):
        assert (one.call("f"), two.call("f"), plain.count()) == ("one", "two", 1)
        server.function_flush()
    for app in (one, two, plain):
        assert app.get(job.id).state == "waiting"
    assert len({one.extension.library.digest, two.extension.library.digest, library().split()[1]}) == 3
    plain.close()


def test_the_digest_depends_on_names_and_texts_only(tmp_path: Path) -> None:
    digests = set()
    for folder, text in (("a", "x"), ("b", "x"), ("c", "y")):
        path = tmp_path / folder / "shop.lua"
        path.parent.mkdir()
        path.write_text(f"-- {text} ]] ]=] \n")
        digests.add(Holdfast(extend=path).extension.library.digest)
    assert len(digests) == 2


def test_a_byte_order_mark_and_lines_of_windows_are_read(app_with: Make) -> None:
    app = app_with(
        "\ufeff" + function("return 1\n\nend)\nholdfast.register('g', function()\nerror('x')").replace("\n", "\r\n")
    )
    assert app.call("f") == 1
    with pytest.raises(LuaFailed, match=r"^own0\.lua:6: x"):
        app.call("g")


def test_any_text_is_quoted(app_with: Make) -> None:
    app = app_with("-- ]] ]=] ]==]]\n" + function("return [==[a]] ]=]]==]") + "\n-- ]")
    assert app.call("f") == "a]] ]=]"


@pytest.mark.skipif(redis_7() is None, reason="there is no redis-server here")
def test_it_works_on_redis(app_with: Make) -> None:
    with running_server(redis_7()) as url:
        app = app_with(function("\nerror('x')") + "\nholdfast.register('g', function(a) return a end)", url=url)
        assert app.call("g", [1]) == [1]
        with pytest.raises(LuaFailed, match=r"^own0\.lua:3: x"):
            app.call("f")


def test_another_slot_of_a_cluster_is_refused_with_the_line(app_with: Make) -> None:
    text = "holdfast.register('mine', function() redis.call('SET', holdfast.key('a'), 1) return 1 end)\n"
    with running_server(cluster=True) as url:
        app = app_with(text + function("redis.call('SET', 'elsewhere', 1)"), url=url)
        assert app.call("mine") == 1
        with pytest.raises(
            LuaFailed, match=r"own0\.lua:3: .*undeclared key|own0\.lua:3: .*do not hash to the same slot"
        ):
            app.call("f")


# Files


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, "must be the path of a Lua file"),
        ([5], "must be the path of a Lua file"),
        (["a/x.lua", "b/x.lua"], "two files of the same name"),
        ("with space.lua", "use up to 50 letters"),
        ("x" * 47 + ".lua", "use up to 50 letters"),
    ],
)
def test_paths_are_checked_when_the_app_is_created(given: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        Holdfast(extend=given)


def test_files_are_read_when_they_are_needed(server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = Holdfast(server_url, extend="later.lua")
    monkeypatch.chdir("/")
    with pytest.raises(Invalid, match=r"later\.lua of this app cannot be read: No such file"):
        app.call("f")
    (tmp_path / "later.lua").write_bytes(b"\xff")
    with pytest.raises(Invalid, match="is not UTF-8"):
        app.call("f")
    (tmp_path / "later.lua").write_text("-- " + "x" * (1 << 20))
    with pytest.raises(TooBig, match="are 1048579 bytes"):
        app.call("f")
    (tmp_path / "later.lua").write_text(function("return 5"))
    assert app.call("f") == 5
    app.close()


def test_the_environment_names_files(server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.lua").write_text(f"holdfast.register('{name}', function() return '{name}' end)")
    monkeypatch.setenv("HOLDFAST_EXTEND", os.pathsep.join(str(tmp_path / f"{name}.lua") for name in ("a", "b")))
    app = Holdfast(server_url)
    assert (app.call("a"), app.call("b")) == ("a", "b")
    app.close()
