"""A step of a job that is done once: its result is kept, and comes back as the function's annotation says.

A result that cannot be kept ends the job, whatever its retries: the step was done, and another attempt would do it
again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from holdfast.codec import Shape
from holdfast.constants import MAX_STEP_RESULT
from holdfast.errors import HoldfastError, Invalid, TooBig
from holdfast.job.failure import message_of
from holdfast.job.outcome import STEP_NOT_KEPT, Fail
from holdfast.names import check_step
from holdfast.running.channel import unwrap


class Step(NamedTuple):
    """One step: its name, and what its function returns."""

    name: str
    shape: Shape

    @classmethod
    def of(cls, name: str, function: Callable[..., Any]) -> Step:
        """Check what can be known before anything is done.

        Raises:
            Invalid: the name is not acceptable, or there is no function.
        """
        if not callable(function):
            raise Invalid(
                f"step {name} is given {function!r:.100}, which cannot be called: pass the function and then its "
                'arguments, as job.once("charge-card", charge, order)'
            )
        return cls(check_step(name), _shape_of(function))

    def encode(self, value: object) -> bytes:
        """Return the result of the step, which was done just now, as it is kept."""
        try:
            result = self.shape.encode(value, "its result")
            if len(result) > MAX_STEP_RESULT:
                raise TooBig(f"its result has {len(result)} bytes; {MAX_STEP_RESULT} are allowed: return a reference")
        except (Invalid, TooBig) as error:
            raise self._not_kept(error) from None
        except Exception as error:  # of a method of the value
            raise self._not_kept(f"its result: {type(error).__name__}: {message_of(error)}") from None
        return result

    def decode(self, result: bytes) -> Any:
        return self.shape.decode(result, f"the result of step {self.name}")

    def kept(self, answer: tuple[str, Any]) -> Any:
        """Return what the store keeps: the result that it was just given, or one that was there before."""
        try:
            return unwrap(answer)
        except (Invalid, TooBig) as error:
            raise self._not_kept(error) from None

    def refuse_coroutine(self, function: Callable[..., Any]) -> None:
        if inspect.iscoroutinefunction(function):
            raise Invalid(f"step {self.name} is an async def: write `await job.aonce({self.name!r}, ...)`")

    def _not_kept(self, why: HoldfastError | str) -> Fail:
        words = f"step {self.name} was done, but that cannot be kept: {why}; a retry would do it again"
        return Fail(words, group=STEP_NOT_KEPT)


def _shape_of(function: Callable[..., Any]) -> Shape:
    try:
        return Shape.of(get_type_hints(function).get("return", Any))
    except (TypeError, NameError, AttributeError):
        return Shape.of(Any)
