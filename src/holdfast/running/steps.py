"""A step of a job, done once: its result is stored, and decoded as the type that its function returns.

A result that cannot be stored fails the job for good: the step was done, and a retry would repeat it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from holdfast.codec import TypeCodec
from holdfast.constants import MAX_STEP_RESULT
from holdfast.errors import HoldfastError, Invalid, TooBig
from holdfast.job.failure import message_of
from holdfast.job.outcome import STEP_NOT_KEPT, Fail
from holdfast.names import check_step
from holdfast.running.link import unwrap


class Step(NamedTuple):
    """One step: its name, and the type that its function returns."""

    name: str
    codec: TypeCodec

    @classmethod
    def of(cls, name: str, function: Callable[..., Any]) -> Step:
        """Check a step before its function is called.

        Raises:
            Invalid: the name is invalid, or the object is not a function.
        """
        if not callable(function):
            raise Invalid(
                f"step {name}: expected a function and its arguments, got {function!r:.100}; write "
                'job.once("charge-card", charge, order)'
            )
        return cls(check_step(name), _result_codec(function))

    def encode(self, value: object) -> bytes:
        """Return the result of the step, which was just done, as bytes for the store."""
        try:
            result = self.codec.encode(value, "its result")
            if len(result) > MAX_STEP_RESULT:
                raise TooBig(f"its result is {len(result)} bytes (limit {MAX_STEP_RESULT}); return a reference")
        except (Invalid, TooBig) as error:
            raise self._not_stored(error) from None
        except Exception as error:  # raised by a method of the value
            raise self._not_stored(f"its result: {type(error).__name__}: {message_of(error)}") from None
        return result

    def decode(self, result: bytes) -> Any:
        return self.codec.decode(result, f"the result of step {self.name}")

    def stored(self, reply: tuple[str, Any]) -> Any:
        """Return the stored result: the new one, or an earlier one."""
        try:
            return unwrap(reply)
        except (Invalid, TooBig) as error:
            raise self._not_stored(error) from None

    def refuse_coroutine(self, function: Callable[..., Any]) -> None:
        if inspect.iscoroutinefunction(function):
            raise Invalid(f"step {self.name} is an async def: write `await job.aonce({self.name!r}, ...)`")

    def _not_stored(self, why: HoldfastError | str) -> Fail:
        message = f"step {self.name} was done, but its result cannot be stored: {why}; a retry would repeat the step"
        return Fail(message, group=STEP_NOT_KEPT)


def _result_codec(function: Callable[..., Any]) -> TypeCodec:
    try:
        return TypeCodec.of(get_type_hints(function, include_extras=True).get("return", Any))
    except (TypeError, NameError, AttributeError):
        return TypeCodec.of(Any)
