"""Run cases on a server, each in a namespace of its own, and delete what they stored."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from holdfast.conformance.cases import Case
from holdfast.conformance.connection import Refusal
from holdfast.conformance.session import Send, Session
from holdfast.conformance.state import find_state_difference
from holdfast.conformance.values import Difference, find_difference

FEW_KEYS = 100
BATCH = 1000  # keys that one SCAN looks at, and that one UNLINK deletes
MAX_NAMESPACES = 1000  # that are tried until one is on this node of a cluster


@dataclass(frozen=True)
class Result:
    """How a case went: `passed`, `failed` or `skipped`, and why."""

    case: Case
    status: str
    why: str = ""

    @property
    def passed(self) -> bool:
        return self.status == "passed"


class Run:
    """Cases that run on one server, in namespaces whose names begin in the same way."""

    def __init__(self, send: Send, library: str) -> None:
        self._send, self._library = send, library
        self._name = f"conformance-{secrets.token_hex(8)}"
        self._namespaces = 0
        self._is_cluster = not isinstance(send("CLUSTER", "INFO"), Refusal)

    def run(self, case: Case) -> Result:
        """Run a case; stop at the first step that replies something else."""
        if obstacle := self._obstacle(case):
            return Result(case, "skipped", obstacle)
        session = self.open_session()
        result = _run_case(case, session)
        if not result.passed:
            self._send("DISCARD")  # the case may have ended inside a transaction
        return result

    def _obstacle(self, case: Case) -> str:
        """Return why a case cannot run on this server, or ""."""
        if case.needs == "no cluster" and self._is_cluster:
            return "it uses keys of several slots, which a cluster refuses"
        if case.needs == "few keys":
            self.clean_up(self._send)
            if self._send("DBSIZE") > FEW_KEYS:
                return "the server has many keys, and one call visits only some of them"
        return ""

    def open_session(self) -> Session:
        """Return a session in a new namespace on this node."""
        for _ in range(MAX_NAMESPACES):
            self._namespaces += 1
            session = Session(self._send, self._library, f"{self._name}-{self._namespaces}")
            reply = self._send("EXISTS", f"{session.prefix}meta")
            if not isinstance(reply, Refusal):
                return session
            if reply.code != "MOVED":
                raise ConnectionError(f"the server refuses commands: {reply.code} {reply.message}")
        raise ConnectionError("this node of the cluster serves no slot; name a primary")

    def clean_up(self, send: Send) -> None:
        """Delete all that was stored, over a connection on which no reply is awaited."""
        for keys in _scan(send, f"hf:{{{self._name}-*}}:*"):
            for _, same in groupby(sorted(keys), lambda key: key.partition(b"}")[0]):
                send("UNLINK", *same)


def _run_case(case: Case, session: Session) -> Result:
    for number, step in enumerate(case.steps, 1):
        if found := _run_step(step, session):
            return Result(case, "failed", f"step {number}, {step.get('call') or step['command'][0]}: {found}")
    found = find_state_difference(case.after, session)
    return Result(case, "failed", f"afterwards, {found}") if found else Result(case, "passed")


def _run_step(step: Any, session: Session) -> Difference | None:
    reply = session.run(step)
    if "error" not in step:
        return find_difference(step["reply"], reply, session.variables)
    if isinstance(reply, Refusal) and reply.code == step["error"]:
        return None
    return Difference("reply", Refusal(step["error"], ""), reply)


def _scan(send: Send, pattern: str) -> Iterator[Sequence[bytes]]:
    cursor = b""
    while cursor != b"0":
        cursor, keys = send("SCAN", cursor or "0", "MATCH", pattern, "COUNT", str(BATCH))
        yield keys
