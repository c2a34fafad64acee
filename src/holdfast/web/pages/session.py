"""The page to sign in. It also answers each request of a page by somebody who is not signed in."""

from __future__ import annotations

import msgspec

from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages

pages = Pages()


class SignInQuery(msgspec.Struct, frozen=True):
    next: str = ""  # the path to return to


@pages.get("/sign-in", role="public")
async def sign_in_page(call: Call, query: SignInQuery) -> Page:
    """Sign in with a password."""
    return sign_in(call, query.next)


def sign_in(call: Call, next: str, *, detail: str = "", name: str = "", status: int = 200) -> Page:
    """Return the page. After signing in it leads to `next`."""
    accounts = call.site.accounts
    return Page(
        "sign_in.html", title="Sign in", status=status, next=next or call.url("/"), detail=detail, name=name,
        has_passwords=accounts is not None, may_sign_in=bool(accounts and accounts.may_sign_in(call.request.scope)),
    )  # fmt: skip
