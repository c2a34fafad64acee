"""Where the words of a running job go: to its executor, in a test to the store, and outside of both nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.errors import BY_CODE, HoldfastError


class Link(Protocol):
    """Where a running job's words go: at once, or, if it asks for something, until the answer is there.

    An answer is the code of an error, '' if there is none, and a value, or the words of the error.
    """

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None: ...

    def log(self, lines: str) -> None: ...

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]: ...

    async def aask(self, word: str, *parts: Any) -> tuple[str, Any]: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def stop_reason(self) -> str: ...


def unwrap(answer: tuple[str, Any]) -> Any:
    """Return the value of an answer, or raise its error."""
    code, value = answer
    if code:
        raise BY_CODE.get(code, HoldfastError)(value)
    return value


@dataclass
class Detached:
    """A link that leads nowhere."""

    stopping: bool = False
    steps: dict[str, bytes] = field(default_factory=dict)

    @property
    def stop_reason(self) -> str:
        return "worker" if self.stopping else ""

    def ask(self, word: str, *parts: Any) -> tuple[str, Any]:
        """Steps that are done are known as long as the job."""
        if word == "flush":
            return "", None
        step, result = parts
        if result is not None:
            self.steps.setdefault(step, result)
        return "", self.steps.get(step)

    async def aask(self, word: str, *parts: Any) -> tuple[str, Any]:
        return self.ask(word, *parts)

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        """What is saved stays with the job."""

    def log(self, lines: str) -> None:
        """There is no log, so it is printed."""
        print(lines, end="")
