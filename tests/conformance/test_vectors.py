"""The vectors are what Python encodes and decodes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

import pytest
from redis.crc import key_slot

from holdfast import names
from holdfast.codec import TypeCodec
from holdfast.conformance import load_vectors
from holdfast.errors import Invalid
from holdfast.store import Address
from holdfast.task.signature import Signature
from holdfast.units import milliseconds

VECTORS = load_vectors()
NAMES: dict[str, Any] = {each.__name__: each for each in (date, datetime, time, timedelta, Decimal, PurePath, UUID)} | {
    "Any": Any,
    "UTC": UTC,
}


def _evaluate(text: str) -> Any:
    return eval(text, dict(NAMES))  # noqa: S307 - our own file


def _signature(parameters: str) -> Signature:
    defined = dict(NAMES)
    exec(f"def send({parameters}): ...", defined)  # noqa: S102 - our own file
    return Signature.of(defined["send"])


@pytest.mark.parametrize("vector", VECTORS["payloads"]["arguments"], ids=lambda each: str(each["shows"]))
def test_arguments(vector: dict[str, Any]) -> None:
    signature = _signature(vector["parameters"])
    args, kwargs = _evaluate(f"(lambda *args, **kwargs: (args, kwargs))({vector['call']})")
    assert signature.encode(args, kwargs).decode() == vector["payload"]
    decoded = signature.decode(vector["payload"].encode())
    for text in vector.get("also", []):
        assert signature.decode(text.encode()) == decoded
    assert TypeCodec.of(Any).decode(vector["payload"].encode(), "payload") == vector["arguments"]


@pytest.mark.parametrize("vector", VECTORS["payloads"]["values"], ids=lambda each: f"{each['type']} {each['python']}")
def test_values(vector: dict[str, Any]) -> None:
    codec, value = TypeCodec.of(_evaluate(vector["type"])), _evaluate(vector["python"])
    assert codec.encode(value, "value").decode() == vector["text"]
    assert TypeCodec.of(Any).decode(vector["text"].encode(), "value") == vector["value"]
    for text in (vector["text"], *vector.get("also", [])):
        assert codec.decode(text.encode(), "value") == value


@pytest.mark.parametrize("vector", VECTORS["payloads"]["results"], ids=lambda each: str(each["shows"]))
def test_results(vector: dict[str, Any]) -> None:
    assert TypeCodec.of(Any).decode(vector["text"].encode(), "result") == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["ids"]["ids"], ids=lambda each: str(each["id"]))
def test_ids(vector: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.names.time.time_ns", lambda: vector["milliseconds"] * 1_000_000)
    monkeypatch.setattr(names, "_unused", [int(vector["random"]) << 14])
    assert names.new_id() == vector["id"] == names.check_id(vector["id"])


@pytest.mark.parametrize("vector", VECTORS["keys"]["namespaces"], ids=lambda each: str(each["namespace"]))
def test_keys(vector: dict[str, Any]) -> None:
    assert Address(None, None, namespace=vector["namespace"]).key == vector["key"]
    assert key_slot(vector["key"].encode()) == vector["slot"]


@pytest.mark.parametrize("vector", VECTORS["durations"]["durations"], ids=lambda each: str(each["text"]))
def test_durations(vector: dict[str, Any]) -> None:
    assert milliseconds(vector["text"], what="duration") == vector["milliseconds"]


@pytest.mark.parametrize("text", VECTORS["durations"]["invalid"])
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(Invalid):
        milliseconds(text, what="duration")


def test_ids_sort_by_time() -> None:
    ids = VECTORS["ids"]["ids"]
    assert sorted(ids, key=lambda each: str(each["id"])) == sorted(
        ids, key=lambda each: (each["milliseconds"], int(each["random"]))
    )
