"""A command is a value: which function of the library to call, with what, and how to read its reply.

One plain function per verb builds it, without I/O. The sync and the async store run the same values. What each verb
does, takes and returns is said at the head of `lua/<verb>.lua`; here stands only how Python writes it down.
"""

from __future__ import annotations

from holdfast.store.commands.attempts import *
from holdfast.store.commands.command import *
from holdfast.store.commands.enqueue import *
from holdfast.store.commands.jobs import *
from holdfast.store.commands.queues import *
from holdfast.store.commands.schedules import *
