"""Commands: values that name a function of the Lua library, its arguments, and how to read its reply.

Plain functions build them, without I/O, in one file per noun; the sync and the async store run the same values. The
head of `lua/<function>.lua` documents each function; the values that replies are read into are defined here.
"""

from __future__ import annotations

from holdfast.store.commands.attempts import *
from holdfast.store.commands.batches import *
from holdfast.store.commands.checks import *
from holdfast.store.commands.command import *
from holdfast.store.commands.config import *
from holdfast.store.commands.enqueue import *
from holdfast.store.commands.events import *
from holdfast.store.commands.explain import *
from holdfast.store.commands.extension import *
from holdfast.store.commands.failures import *
from holdfast.store.commands.jobs import *
from holdfast.store.commands.libraries import *
from holdfast.store.commands.limits import *
from holdfast.store.commands.queries import *
from holdfast.store.commands.queues import *
from holdfast.store.commands.schedules import *
from holdfast.store.commands.statistics import *
from holdfast.store.commands.tags import *
from holdfast.store.commands.work_queues import *
from holdfast.store.commands.workers import *
