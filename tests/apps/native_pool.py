"""A library that starts a thread when it is imported, outside of Python, as OpenBLAS does for numpy.

THREAD says what becomes of it: `ends` before a fork, by the library's own handler, and the library starts no other;
`stays`; or any other word is its name.
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None)
_thread = ctypes.c_ulong()
_libc.pthread_create(ctypes.byref(_thread), None, _libc.pause, None)
how = os.environ["THREAD"]


def _end() -> None:
    _libc.pthread_cancel(_thread)
    _libc.pthread_join(_thread, None)


end = ctypes.CFUNCTYPE(None)(_end)

if how == "ends":
    _libc["__register_atfork"](end, None, None, None)
else:
    _libc.pthread_setname_np(_thread, how.encode())
