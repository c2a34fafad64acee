"""Every test of the function library ends with a check of all keys."""

from tests.support.consistency import check_all_keys, client

__all__ = ["check_all_keys", "client"]
