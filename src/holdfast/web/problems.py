"""Errors of requests as RFC 9457 problem details; each error of Holdfast has its status here."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast import errors
from holdfast.job.errors import JobCancelled, JobFailed

RETRY_AFTER = 5  # seconds, while the store is unavailable

STATUS: dict[type[Exception], int] = {
    errors.NotFound: 404,
    errors.JobExists: 409,
    errors.WrongState: 409,
    errors.WorkDone: 409,
    errors.LeaseLost: 409,
    errors.JobBlocked: 409,
    errors.DependencyCycle: 409,
    errors.Refused: 409,
    errors.TooBig: 413,
    errors.Invalid: 422,
    errors.LuaFailed: 422,
    errors.ResultTimeout: 202,
    errors.StoreFull: 507,
    errors.StoreUnavailable: 503,
    errors.NotReplicated: 503,
    errors.WrongSchema: 503,
    JobFailed: 409,
    JobCancelled: 409,
}


class Problem(Exception):
    """A request that cannot be answered: its status, a code as in `HoldfastError.code`, and what to do."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers = headers or {}

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def details(self) -> ProblemDetails:
        return ProblemDetails(title=self.title, status=self.status, code=self.code, detail=self.detail)


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, as application/problem+json."""

    type: Annotated[str, Meta(description="always about:blank: `code` says which problem it is")] = "about:blank"
    title: Annotated[str, Meta(description="phrase of the status")]
    status: Annotated[int, Meta(description="status of the answer")]
    code: Annotated[str, Meta(description="which problem it is, for programs: NOTFOUND, INVALID, STATE ...")]
    detail: Annotated[str, Meta(description="what is wrong, and what to do about it, for people")]


def problem_of(error: Exception) -> Problem | None:
    """Return the problem that an error is for a client, or None if it is a fault of the server."""
    if isinstance(error, Problem):
        return error
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else None
            return Problem(status, getattr(error, "code", "ERROR"), str(error) or kind.__name__, headers)
    if isinstance(error, errors.HoldfastError):
        return Problem(500, error.code, str(error))
    return None
