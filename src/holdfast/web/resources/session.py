"""Sessions of the dashboard: sign in, sign out, and who one is."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from holdfast.web.call import Call
from holdfast.web.problems import Problem
from holdfast.web.resource import Resources
from holdfast.web.security.accounts import Accounts
from holdfast.web.security.passwords import MAX_PASSWORD
from holdfast.web.security.users import User

routes = Resources()


class Credentials(msgspec.Struct, frozen=True):
    """What somebody signs in with."""

    name: Annotated[str, msgspec.Meta(max_length=200, description="name of the user")]
    password: Annotated[str, msgspec.Meta(max_length=MAX_PASSWORD, description="password of the user")]


class Identity(msgspec.Struct, frozen=True):
    """Who makes requests, and what they may do."""

    name: Annotated[str, msgspec.Meta(description="name of the user or the token")]
    role: Annotated[str, msgspec.Meta(description="viewer, operator or admin")]
    queues: Annotated[list[str] | None, msgspec.Meta(description="names and patterns of queues; null: all")]
    sees_data: Annotated[bool, msgspec.Meta(description="whether arguments, results, errors and logs are shown")]


@routes.get("/session", scope="none", reply=Identity)
async def show_session(call: Call) -> Identity:
    """Show who one is, and what one may do."""
    return _identity(call.user)


@routes.post("/session", role="public", scope="none", reply=Identity)
async def sign_in(call: Call, body: Credentials) -> Identity:
    """Sign in with a password: the answer sets the cookie of a session. Programs send a token instead."""
    accounts = _accounts(call)
    call.audited["name"] = body.name
    user, session = await accounts.sign_in(call.request, body.name, body.password)
    call.user = user
    call.finishing.append(lambda response: accounts.set_cookie(call.request, response, session))
    return _identity(user)


@routes.delete("/session", role="public", scope="none")
async def sign_out(call: Call) -> None:
    """Sign out: the session ends, and its cookie is deleted."""
    accounts = _accounts(call)
    call.user = accounts(call.request.scope) or call.user
    accounts.sign_out(call.request)
    call.finishing.append(partial(accounts.delete_cookie, call.request))


def _accounts(call: Call) -> Accounts:
    if call.site.accounts is None:
        raise Problem(404, "NOTFOUND", "nobody signs in here: another program does that, or all may do everything")
    return call.site.accounts


def _identity(user: User) -> Identity:
    queues = None if user.queues is None else list(user.queues)
    return Identity(user.name, user.role, queues, user.may_see_data)
