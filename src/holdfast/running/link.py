"""The link of a running job: to its executor; in a test, to the store; for a plain function call, to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.errors import BY_CODE, HoldfastError
from holdfast.job.fields import check_number
from holdfast.job.marks import check_number as check_number_of_tags


class Link(Protocol):
    """Sends what a running job saves, logs and requests.

    A request waits for its reply: an error code ('' for none), and a value or the error message.
    """

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None: ...

    def log(self, lines: str) -> None: ...

    def request(self, name: str, *arguments: Any) -> tuple[str, Any]: ...

    async def arequest(self, name: str, *arguments: Any) -> tuple[str, Any]: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def stop_reason(self) -> str: ...


def unwrap(reply: tuple[str, Any]) -> Any:
    """Return the value of a reply, or raise its error."""
    code, value = reply
    if code:
        raise BY_CODE.get(code, HoldfastError)(value)
    return value


@dataclass
class DetachedLink:
    """The link of a task that is called as a function: nothing is sent."""

    stopping: bool = False
    steps: dict[str, bytes] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)

    @property
    def stop_reason(self) -> str:
        return "worker" if self.stopping else ""

    def request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        """Keep the results of steps, fields and tags in memory."""
        if name == "flush":
            return "", None
        if name == "attach":
            return self._attach(*arguments)
        if name == "tag":
            return self._tag(*arguments)
        step, result = arguments
        if result is not None:
            self.steps.setdefault(step, result)
        return "", self.steps.get(step)

    def _attach(self, fields: dict[str, str], remove: list[str]) -> tuple[str, Any]:
        changed = {name: text for name, text in (self.fields | fields).items() if name not in remove}
        check_number("the job", changed)
        self.fields.clear()
        self.fields.update(changed)
        return "", changed

    def _tag(self, tags: Sequence[str], remove: Sequence[str]) -> tuple[str, Any]:
        left = [tag for tag in self.tags if tag not in remove]
        self.tags[:] = check_number_of_tags("the job", [*left, *tags])
        return "", [*self.tags]

    async def arequest(self, name: str, *arguments: Any) -> tuple[str, Any]:
        return self.request(name, *arguments)

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        """Send nothing: the job keeps its checkpoint in memory."""

    def log(self, lines: str) -> None:
        """Print the lines, because there is no log."""
        print(lines, end="")
