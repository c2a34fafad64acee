"""A client of the protocol in a namespace of its own: it knows nothing of Holdfast but the text of the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.conformance.connection import Refusal
from holdfast.conformance.values import encode, expand, fill_in

Send = Callable[..., Any]  # as `Connection.send`


class Session:
    """Calls functions in a namespace, and knows the variables of a case."""

    def __init__(self, send: Send, library: str, namespace: str) -> None:
        self.send, self._library = send, library
        self._digest = library.partition("\n")[0].rpartition("_")[2]
        self.prefix = f"hf:{{{namespace}}}:"
        self.variables: dict[str, Any] = {"namespace": namespace, "prefix": self.prefix, "digest": self._digest}
        self.now = 0  # of the last step

    def run(self, step: Mapping[str, Any]) -> Any:
        """Run a step, and return its reply."""
        if "command" in step:
            return self.send(*map(encode, fill_in(step["command"], self.variables)))
        args, blobs = fill_in([step.get("args", {}), step.get("blobs", [])], self.variables)
        self.now = step["now"]
        return self.call(step["call"], expand(args), *map(encode, blobs))

    def call(self, function: str, args: dict[str, Any], *blobs: bytes) -> Any:
        """Call a function at the time of the last step, loading the library if the server does not have it."""
        text = json.dumps({**args, "now": self.now}, ensure_ascii=False)
        parts = ("FCALL", f"hf_{self._digest}_{function}", "1", f"{self.prefix}meta", text, *blobs)
        reply = self.send(*parts)
        if isinstance(reply, Refusal) and "Function not found" in reply.message:
            loaded = self.send("FUNCTION", "LOAD", self._library)
            if isinstance(loaded, Refusal) and "already exists" not in loaded.message:
                return loaded
            reply = self.send(*parts)
        return reply
