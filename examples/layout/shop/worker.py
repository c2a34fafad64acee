"""What a worker imports: the app, and every module with tasks."""

from shop import mail, reports
from shop.app import jobs

__all__ = ["jobs", "mail", "reports"]
