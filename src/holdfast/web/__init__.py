"""The web: REST API, dashboard and metrics of an app, as an ASGI application.

    holdfast web                                             # serve it
    holdfast.web.app(jobs, auth=user_of)                     # mount it, in Starlette and FastAPI
    holdfast.web.beside(django, "/jobs", jobs, auth=user_of)  # put it beside Django

Needs the extra `holdfast[web]`; nothing else imports it.
"""

try:
    import jinja2 as _jinja2  # noqa: F401 - to see whether it is here
    import starlette as _starlette  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error.name} is not installed: pip install 'holdfast[web]'", name=error.name) from error

from holdfast.web.application import Application, app
from holdfast.web.beside import beside
from holdfast.web.security.users import User

__all__ = ["Application", "User", "app", "beside"]
