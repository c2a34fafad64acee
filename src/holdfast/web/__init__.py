"""The web: REST API, dashboard and metrics of an app, as an ASGI application.

    holdfast web                                             # serve it
    holdfast.web.app(jobs, auth=user_of)                     # mount it, in Starlette and FastAPI
    holdfast.web.beside(django, "/jobs", jobs, auth=user_of)  # put it beside Django

Needs the extra `holdfast[web]`; nothing else imports it.
"""

from holdfast.web.application import Application, app
from holdfast.web.beside import beside
from holdfast.web.security.users import User

__all__ = ["Application", "User", "app", "beside"]
