"""Retry policies as values: what they accept, what is stored, and which exceptions they exclude."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Fail, Holdfast, Invalid, Retries, Retry, WrongArguments
from holdfast.constants import MAX_DURATION
from holdfast.job.options import UNREADABLE_RUN_OPTIONS, CheckedOptions, RunOptions
from holdfast.job.outcome import Error, outcome_of
from holdfast.job.retries import NO_POLICY, RetryPolicy, RetryWait

ROOT = Path(__file__).parents[2]


class Late(TimeoutError):
    pass


class Many(ExceptionGroup[Exception]):
    pass


class HidingMeta(type):
    def __getattribute__(cls, name: str) -> object:
        raise RuntimeError("hidden")


class Hidden(Exception, metaclass=HidingMeta):
    pass


Sold = type("Sold", (Exception,), {"__module__": "shop\udce9"})


def test_a_policy_has_the_values_that_users_write_and_stores_milliseconds_and_names() -> None:
    retries = Retries(
        5, waits=["1s", 10, timedelta(minutes=1)], cap="5m", jitter=0.2, on=(OSError, Late), not_on=KeyError
    )
    assert (retries.max, retries.cap, retries.jitter) == (5, timedelta(minutes=5), 0.2)
    assert retries.waits == (timedelta(seconds=1), timedelta(seconds=10), timedelta(minutes=1))
    assert (retries.on, retries.not_on) == (("OSError", f"{__name__}.Late"), ("KeyError",))
    assert repr(retries) == (
        "Retries(5, waits=['1s', '10s', '1m'], cap='5m', jitter=0.2, "
        f"on=['OSError', '{__name__}.Late'], not_on=['KeyError'])"
    )
    batch = CheckedOptions().replace(retries=retries).arguments()
    assert batch["retries"] == 5
    assert json.loads(batch["run"]) == {
        "retry_policy": {
            "waits": [1000, 10_000, 60_000],
            "cap": 300_000,
            "jitter": 0.2,
            "on": ["OSError", f"{__name__}.Late"],
            "not_on": ["KeyError"],
        }
    }
    assert RunOptions.decode(batch["run"].encode()).retry_policy == retries.policy
    assert CheckedOptions().replace(retries=Retries(waits=5, jitter=float("0.1"))).arguments()["run"] == (
        '{"retry_policy":{"waits":[5000]}}'
    )
    assert Retries(waits="1m") == Retries(waits=["60s"])
    assert Retries(on="IOError").on == Retries(on="builtins.OSError").on == ("OSError",)
    assert Retries(on="asyncio.TimeoutError").on == ("TimeoutError",)
    assert Retries(on=["not.loaded.Error"]).on == ("not.loaded.Error",)
    assert Retries(on="shop.sell.<locals>.Sold").on == ("shop.sell.<locals>.Sold",)
    assert Retries(on={OSError}, not_on=frozenset([KeyError])) == Retries(on=OSError, not_on=KeyError)


def test_a_module_that_must_not_be_imported_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blocked", None)
    assert Retries(on="blocked.Error").policy.why_final(Late()) == f"not retried: {__name__}.Late is not in on"


@pytest.mark.parametrize("number", [None, 0, 5])
def test_a_policy_of_only_a_number_is_stored_as_that_number(number: int | None) -> None:
    assert CheckedOptions().replace(retries=Retries(number)) == CheckedOptions().replace(retries=number)
    assert "run" not in CheckedOptions().replace(retries=Retries(number)).arguments()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max": -1}, "max of Retries is -1; it must be an int from 0 to 1000"),
        ({"max": True}, "max of Retries is True"),
        ({"waits": ["1s", "soon"]}, "waits of Retries is 'soon'"),
        ({"waits": -1}, "waits of Retries is -1"),
        ({"waits": ["1s"] * 21}, r"waits of Retries has 21 times \(limit 20\); the last one repeats"),
        ({"waits": {"1s"}}, "waits of Retries is {'1s'}"),
        ({"cap": 0}, "cap of Retries is 0; it must be from 1ms"),
        ({"cap": "11000w"}, "cap of Retries is"),
        ({"jitter": 1.5}, "jitter of Retries is 1.5; it must be a number from 0 to 1"),
        ({"jitter": float("nan")}, "jitter of Retries is nan"),
        ({"jitter": True}, "jitter of Retries is True"),
        ({"jitter": "10%"}, "jitter of Retries is '10%'"),
        ({"on": []}, "on of Retries is empty; omit it to retry every exception"),
        ({"on": [int]}, "on of Retries has <class 'int'>; it must be exception classes"),
        ({"not_on": ValueError()}, r"not_on of Retries has ValueError\(\); it must be exception classes"),
        ({"on": "Timeout"}, "on of Retries has 'Timeout', which is not an exception; write the full name"),
        ({"on": "json.dumps"}, "on of Retries has 'json.dumps', which is not an exception"),
        ({"on": "builtins.TimeOutError"}, "on of Retries has 'builtins.TimeOutError', which is not an exception"),
        ({"on": "a b.C"}, "on of Retries has 'a b.C'"),
        ({"on": ""}, "on of Retries has ''"),
        ({"not_on": [f"a.{'x' * 1100}"]}, r"Retries takes \d+ bytes \(limit 1024\)"),
    ],
)
def test_an_invalid_policy_is_refused_where_it_is_written(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        Retries(**given)


def test_anything_else_is_refused_as_retries() -> None:
    jobs = Holdfast("redis://127.0.0.1:1")
    for wrong in ("5", Retry(), {"max_retries": 3}, 1001, 2.0):
        with pytest.raises(
            Invalid, match=r"retries is .*; it must be an int from 0 to 1000, or a policy, Retries\(...\)"
        ):
            jobs.task(name="t", retries=wrong)  # type: ignore[arg-type]


# Which of them applies


def test_retries_replaces_the_whole_policy_and_a_later_backoff_its_waits() -> None:
    app = CheckedOptions().replace(retries=Retries(5, waits="1s", cap="1m", on=OSError))
    assert (app.retries, app.retry_policy) == (5, RetryPolicy((1000,), 60_000, on=("OSError",)))
    plain = app.replace(retries=7)
    assert (plain.retries, plain.retry_policy) == (7, None)
    assert (app.replace(retries=None).retries, app.replace(retries=None).retry_policy) == (None, None)
    other = app.replace(retries=Retries(not_on=KeyError))
    assert (other.retries, other.retry_policy) == (None, RetryPolicy(not_on=("KeyError",)))
    later = app.replace(backoff="2s")
    assert (later.retries, later.backoff, later.retry_policy) == (5, 2000, RetryPolicy(cap=60_000, on=("OSError",)))
    assert CheckedOptions().replace(retries=Retries(waits="1s")).replace(backoff=1).retry_policy is None
    inherited = CheckedOptions().replace(backoff="2s").replace(retries=Retries(waits="1s"))
    assert (inherited.backoff, inherited.retry_policy) == (2000, RetryPolicy((1000,)))
    assert inherited.replace(retries=7).arguments() == {"queue": "default", "retries": 7, "backoff": 2000}
    assert app.replace(priority=1).retry_policy == app.retry_policy


def test_waits_and_backoff_cannot_be_given_together() -> None:
    with pytest.raises(Invalid, match="backoff and the waits of retries are both given; give one of them"):
        CheckedOptions().replace(retries=Retries(waits="1s"), backoff="1s")
    with pytest.raises(Invalid, match="defaults: backoff and the waits"):
        Holdfast(defaults={"retries": Retries(waits="1s"), "backoff": "1s"})
    both = CheckedOptions().replace(retries=Retries(cap="1m"), backoff="1s")
    assert (both.backoff, both.retry_policy) == (1000, RetryPolicy(cap=60_000))


# What a worker does with it


def test_an_error_that_can_be_retried_gets_a_random_part_of_the_jitter() -> None:
    error = Error(b"", "g")
    assert error.with_wait(None, 0.999).wait == RetryWait((), None, 99)
    assert error.with_wait(None, 0).wait == RetryWait((), None, 0)
    policy = RetryPolicy((5,), 7, 1.0)
    assert error.with_wait(policy, 0.9999).wait == RetryWait((5,), 7, 999)
    assert error.with_wait(RetryPolicy(jitter=0), 0.999).wait == RetryWait()
    for final in (Error(b"", "g", final=True), Error(b"", "g", delay=0)):
        assert final.with_wait(policy, 0.5) is final


@pytest.mark.parametrize(
    ("policy", "error", "reason"),
    [
        (NO_POLICY, KeyError(), ""),
        (Retries(on=OSError).policy, ConnectionResetError(), ""),
        (Retries(on=OSError).policy, Late(), ""),
        (Retries(on=Late).policy, TimeoutError(), "not retried: TimeoutError is not in on"),
        (Retries(on=Exception, not_on=LookupError).policy, KeyError(), "not retried: LookupError is in not_on"),
        (Retries(on=OSError).policy, asyncio.CancelledError(), ""),
        (Retries(on=OSError).policy, KeyboardInterrupt(), ""),
        (Retries(not_on=BaseException).policy, KeyboardInterrupt(), "not retried: BaseException is in not_on"),
        (
            Retries(on=OSError).policy,
            ExceptionGroup("", [Late(), ValueError()]),
            "not retried: ValueError is not in on",
        ),
        (Retries(on=OSError).policy, ExceptionGroup("", [Late(), ExceptionGroup("", [OSError()])]), ""),
        (Retries(not_on=OSError).policy, ExceptionGroup("", [KeyError(), Late()]), "not retried: OSError is in not_on"),
        (
            Retries(not_on=("a.b", f"{__name__}.Late")).policy,
            Late(),
            "not retried: tests.job.test_retries.Late is in not_on",
        ),
        (RetryPolicy(on=("a",)), type("X" * 50, (Exception,), {})(), f"not retried: ...{'X' * 33} is not in on"),
        (RetryPolicy(on=("a",)), type("é" * 50, (Exception,), {})(), f"not retried: ...{'é' * 16} is not in on"),
        (RetryPolicy(on=("a",)), Sold(), "not retried: shop\\udce9.Sold is not in on"),
        (RetryPolicy(on=("a",)), Hidden(), "not retried: <unknown>.Hidden is not in on"),
        (RetryPolicy(on=("a",)), WrongArguments(), ""),
        (RetryPolicy(not_on=("ValueError",)), WrongArguments(), ""),
        (RetryPolicy(not_on=("ValueError",)), Invalid(), "not retried: ValueError is in not_on"),
        (Retries(not_on=Many).policy, Many("", [Late()]), f"not retried: {__name__}.Many is in not_on"),
        (Retries(not_on=ExceptionGroup).policy, Many("", [Late()]), "not retried: ExceptionGroup is in not_on"),
        (Retries(on=Many).policy, Many("", [Late()]), ""),
        (Retries(on=Many).policy, ExceptionGroup("", [Many("", [Late()])]), ""),
        (Retries(on=Many).policy, ExceptionGroup("", [Late()]), f"not retried: {__name__}.Late is not in on"),
        (RetryPolicy(on=("socket.timeout",)), TimeoutError(), ""),
        (RetryPolicy(not_on=("socket.timeout",)), Late(), "not retried: socket.timeout is in not_on"),
        (RetryPolicy(on=("blocked.Error", "a.b.c")), Late(), f"not retried: {__name__}.Late is not in on"),
    ],
)
def test_an_exception_is_excluded_by_the_names_of_its_classes(
    policy: RetryPolicy, error: BaseException, reason: str
) -> None:
    assert policy.why_final(error) == reason
    assert len(reason.encode()) <= 64, "the store keeps 64 bytes of it"
    outcome = outcome_of(error, policy)
    assert isinstance(outcome, Error)
    assert (outcome.final, outcome.reason) == (("not_retryable", reason) if reason else (False, ""))


def test_retry_is_an_explicit_request_and_fail_is_final_anyway() -> None:
    policy = Retries(on=OSError, not_on=Exception).policy
    retry, fail = outcome_of(Retry("1s"), policy), outcome_of(Fail("no"), policy)
    assert isinstance(retry, Error)
    assert isinstance(fail, Error)
    assert (retry.final, retry.delay, retry.reason) == (False, 1000, "")
    assert (fail.final, fail.reason) == (True, "")


@pytest.mark.parametrize(
    "policy",
    [
        {"waits": [-1]},
        {"waits": [0] * 21},
        {"waits": [MAX_DURATION + 1]},
        {"cap": -1},
        {"jitter": 2},
        {"on": "OSError"},
    ],
)
def test_a_stored_policy_that_the_store_would_refuse_is_unreadable(policy: dict[str, Any]) -> None:
    assert RunOptions.decode(msgspec.json.encode({"retry_policy": policy})) is UNREADABLE_RUN_OPTIONS
    assert RunOptions.decode(b'{"retry_policy":{"of a newer release":1}}').retry_policy == NO_POLICY


def test_an_exception_of_the_main_module_has_the_name_that_workers_import(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from holdfast import Retries\n"
        "class Sold(Exception): ...\n"
        "policy = Retries(not_on=Sold)\n"
        "if __name__ == '__main__':\n"
        "    import shop\n"
        "    print(policy.not_on)\n"
        "    print(policy.policy.why_final(shop.Sold()))\n"
        "    print(shop.policy.policy.why_final(Sold()))\n"
    )
    printed = subprocess.run([sys.executable, tmp_path / "shop.py"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["('shop.Sold',)", *["not retried: shop.Sold is in not_on"] * 2]
