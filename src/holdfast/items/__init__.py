"""Items: leases on raw bytes, without tasks or workers."""

from holdfast.items.item import Item, NoItem
from holdfast.items.items import Items
from holdfast.items.token import Token, read_token

__all__ = ["Item", "Items", "NoItem", "Token", "read_token"]
