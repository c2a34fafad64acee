"""Items: leases on raw bytes, without tasks or workers."""

from holdfast.items.item import Item, NoItem
from holdfast.items.items import Items

__all__ = ["Item", "Items", "NoItem"]
