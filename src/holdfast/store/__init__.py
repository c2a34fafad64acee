"""The store: the only package that talks to Valkey or Redis.

commands ──▶ store ──▶ pool ──▶ connection        after an error: command_retry and server_errors
"""

from __future__ import annotations

from holdfast.store import commands
from holdfast.store.address import Address, mask, read_url, socket_url
from holdfast.store.caller import acting_as
from holdfast.store.client_method import Stores, client_method, paged_method, pop_message
from holdfast.store.commands import Command
from holdfast.store.deadline import Deadline
from holdfast.store.driver import Action, Pages, Steps, adrive, drive, in_thread, sleep
from holdfast.store.store import AsyncStore, Clock, Store
from holdfast.store.tokens import new_token, repeatable

__all__ = [
    "Action",
    "Address",
    "AsyncStore",
    "Clock",
    "Command",
    "Deadline",
    "Pages",
    "Steps",
    "Store",
    "Stores",
    "acting_as",
    "adrive",
    "client_method",
    "commands",
    "drive",
    "in_thread",
    "mask",
    "new_token",
    "paged_method",
    "pop_message",
    "read_url",
    "repeatable",
    "sleep",
    "socket_url",
]
