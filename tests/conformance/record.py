"""Fill in what a real server replies to the steps of the cases: `make cases`, or for some areas

    python -m tests.conformance.record [--replace] claim finish

People write the names, texts and steps of cases. This adds the clock of a step that has none, and replies and states
where they are missing; `bind` of a step names opaque parts of its reply: {"cursor": [0]}. A reply that is written
already is compared, never overwritten, unless you pass --replace. Review all that it wrote with `git diff`: a wrong
reply that is recorded is a wrong test.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import holdfast.conformance
from holdfast.conformance import Connection, Refusal, Session
from holdfast.conformance.session import Send
from holdfast.conformance.state import find_state_difference, read_counts, read_jobs, read_keys
from holdfast.conformance.values import find_difference, read_names, readable
from holdfast.store.library import library
from tests.conformance.layout import write_json
from tests.conformance.shapes import write, write_job, write_reply
from tests.support.servers import running_server

FOLDER = Path(holdfast.conformance.__file__).parent / "cases"
START = 1_700_000_000_000  # the time of the first step
STEP = 1000  # milliseconds between steps that name no time
ORDER = ("name", "shows", "needs", "steps", "after")
ORDER_OF_STEP = ("call", "command", "now", "args", "blobs", "error", "reply")
PAGE = 1000
VARIABLE = re.compile(r"\$\{\w+\}")

Content = dict[str, Any]


def main(words: list[str]) -> int:
    replace, names = "--replace" in words, [word for word in words if word != "--replace"]
    paths = [FOLDER / f"{name}.json" for name in names] or sorted(FOLDER.glob("*.json"))
    reports: list[str] = []
    with running_server() as url:
        connection = Connection("unix", {"path": url.removeprefix("unix://")})
        for path in paths:
            recorder = Recorder(connection.send, replace=replace)
            path.write_text(recorder.record_file(path.read_text()))
            reports += [f"{path.stem}/{each}" for each in recorder.reports]
        connection.close()
    print("\n".join(reports) or "all replies are as they are written")
    return 1 if reports else 0


class Recorder:
    """Records cases; `reports` are the differences from what they say already."""

    def __init__(self, send: Send, *, replace: bool) -> None:
        self._send, self._replace = send, replace
        self._cases = 0
        self.reports: list[str] = []

    def record_file(self, text: str) -> str:
        content = json.loads(text)
        cases = [self._record_case(case) for case in content["cases"]]
        return write_json({"about": content["about"], "cases": cases}, open=4) + "\n"

    def _record_case(self, case: Content) -> Content:
        self._cases += 1
        session = Session(self._send, library(), f"recorded{self._cases}")
        steps = []
        for number, step in enumerate(_with_clocks(case["steps"]), 1):
            try:
                steps.append(self._record_step(step, session, f"{case['name']}, step {number}"))
            except KeyError as error:
                self.reports.append(f"{case['name']}, step {number}: no variable {error}")
                return case
        after = self._record_state(case, session)
        self._send("FLUSHALL")
        made = {**case, "steps": steps, **({"after": after} if after else {})}
        return {name: made[name] for name in ORDER if name in made}

    def _record_step(self, step: Content, session: Session, place: str) -> Content:
        reply = session.run(step)
        found = self._compare_step(step, reply, session)
        if found and self._replace:
            self.reports.append(f"{place}: replaced: {found}")
        elif found:
            self.reports.append(f"{place}: {found}")
        elif "reply" in step or "error" in step:
            return {name: step[name] for name in ORDER_OF_STEP if name in step}
        if not found or self._replace:
            step = _fill_in_reply(step, reply, session)
        return {name: step[name] for name in ORDER_OF_STEP if name in step}

    def _compare_step(self, step: Content, reply: Any, session: Session) -> Any:
        """Return how a reply differs from what is written already; bind variables on the way."""
        if "error" in step:
            is_same = isinstance(reply, Refusal) and reply.code == step["error"]
            return None if is_same else f"expected the error {step['error']}, got {readable(reply)}"
        return find_difference(step["reply"], reply, session.variables) if "reply" in step else None

    def _record_state(self, case: Content, session: Session) -> Content:
        before: Content | None = case.get("after")
        if before is not None and {} not in before.get("keys", {}).values():
            found = find_state_difference(before, session)
            if found:
                self.reports.append(f"{case['name']}, afterwards{': replaced' if self._replace else ''}: {found}")
            if not found or not self._replace:
                return dict(before)
        after: Content = _name(_read_state(before or {}, session), session.variables)
        return after


def _fill_in_reply(step: Content, reply: Any, session: Session) -> Content:
    """Write a reply into a step; its opaque parts are those of `bind`, and those that the old one had."""
    step = dict(step)
    bind, old = step.pop("bind", {}), step.pop("reply", None)
    step.pop("error", None)
    if isinstance(reply, Refusal):
        return {**step, "error": reply.code}
    for name, path in bind.items():
        session.variables[name] = readable(_at(reply, path))
    written = write_reply(step.get("call", ""), step.get("args", {}), reply)
    written = _keep_variables(old, _bound(written, bind), session.variables)
    return {**step, "reply": _name(written, session.variables)}


def _keep_variables(old: Any, new: Any, variables: dict[str, Any]) -> Any:
    """Write `${name}` where the old reply had it, and give it its new value."""
    if isinstance(old, str) and VARIABLE.fullmatch(old):
        variables.setdefault(old[2:-1], new)
        return old
    if isinstance(old, list) and isinstance(new, list):
        return [_keep_variables(one, other, variables) for one, other in zip_longest(old[: len(new)], new)]
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: _keep_variables(old.get(name), each, variables) for name, each in new.items()}
    return new


def _read_state(before: Content, session: Session) -> Content:
    """Return all jobs, those that must not exist, and the keys that the case names."""
    ids = [*_all_ids(session), *(id for id, job in before.get("jobs", {}).items() if job is None)]
    ids = list(dict.fromkeys(ids))
    jobs = read_jobs(session, ids)
    after: Content = {}
    if ids:
        after["jobs"] = {id: write_job(jobs[id]) for id in ids}
    counts = read_counts(session, [])
    if not isinstance(counts, Refusal):  # the schema of the namespace is another
        after["counts"] = counts
    if "keys" in before:
        after["keys"] = _write_keys(read_keys(session, list(before["keys"])))
    return after


def _write_keys(keys: Mapping[str, Any]) -> Content:
    return {
        name: found and {kind: _write_content(each) for kind, each in found.items()} for name, found in keys.items()
    }


def _write_content(value: Any) -> Any:
    return {name: write(each) for name, each in value.items()} if isinstance(value, dict) else write(value)


def _all_ids(session: Session) -> Iterator[str]:
    cursor = ""
    while True:
        page = session.call("list", {"limit": PAGE, "fields": ["id"], **({"cursor": cursor} if cursor else {})})
        if isinstance(page, Refusal):
            return
        yield from sorted(row[0].decode() for row in page[2:])
        cursor = page[0].decode()
        if not cursor:
            return


def _with_clocks(steps: list[Content]) -> Iterator[Content]:
    """Put each call without a time a second after the one before."""
    now = START - STEP
    for step in steps:
        if "call" in step:
            now = step.get("now", now + STEP)
            yield {**step, "now": now}
        else:
            yield dict(step)


def _at(value: Any, path: list[int | str]) -> Any:
    """Return a part of a reply; names are those in a list of names and values."""
    for index in path:
        value = (read_names(value) or value)[index] if isinstance(index, str) else value[index]
    return value


def _bound(written: Any, bind: Mapping[str, list[int | str]]) -> Any:
    """Write `${name}` where a variable gets its value."""
    for name, path in bind.items():
        if not path:
            return f"${{{name}}}"
        _at(written, path[:-1])[path[-1]] = f"${{{name}}}"
    return written


def _name(value: Any, variables: Mapping[str, Any]) -> Any:
    """Write `${name}` in place of the values of variables."""
    if isinstance(value, str):
        for name, known in sorted(variables.items(), key=lambda each: -len(str(each[1]))):
            if isinstance(known, str) and len(known) > 5 and name != "namespace":
                value = value.replace(known, f"${{{name}}}")
        return value
    if isinstance(value, list):
        return [_name(each, variables) for each in value]
    if isinstance(value, dict):
        return {_name(name, variables): _name(each, variables) for name, each in value.items()}
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
