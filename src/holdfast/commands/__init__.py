"""A command is a value: which function of the library to call, with what, and how to read its reply.

One plain function per verb builds it, without I/O. The sync and the async store run the same values. What each verb
does, takes and returns is said at the head of `lua/<verb>.lua`; here stands only how Python writes it down.
"""

from __future__ import annotations

from holdfast.commands.attempts import *
from holdfast.commands.command import *
from holdfast.commands.finding import *
from holdfast.commands.overseeing import *
from holdfast.commands.scheduling import *
from holdfast.commands.steering import *
from holdfast.commands.storing import *
