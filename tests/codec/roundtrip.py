"""A value on its way through the store: as an argument, and back."""

from __future__ import annotations

from typing import Any

from holdfast.task.signature import Signature


def signature_of(annotation: Any) -> Signature:
    """Return the signature of a function of one parameter, of this annotation."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return Signature.of(function, "shop.order")


def stored(annotation: Any, value: object) -> bytes:
    """Return the argument as it is stored."""
    data = signature_of(annotation).encode([value], {})
    return data.removeprefix(b'{"value":').removesuffix(b"}")


def there_and_back(annotation: Any, value: object) -> Any:
    signature = signature_of(annotation)
    args, kwargs = signature.decode(signature.encode([value], {}))
    assert kwargs == {}
    return args[0]
