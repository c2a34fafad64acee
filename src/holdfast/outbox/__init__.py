"""The outage policy: what happens to calls while the server is unreachable."""

from holdfast.outbox.outage_policy import OutagePolicy

__all__ = ["OutagePolicy"]
