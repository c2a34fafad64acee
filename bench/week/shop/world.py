"""The world around the shop: what its tasks meet. The story of the week changes it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast import Holdfast


class World:
    """The state of the world."""

    app: Holdfast  # of the shop

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        self.random = Random(seed)
        self.revision = 413
        self.mail_is_down = False
        self.loses_tax_numbers = False  # a mistake of revision 416
        self.gateway_loses_dollars = False  # a mistake of revision 418
        self.gpu_memory_is_short = False
        self.customer_is_slow = False

    def between(self, least: float, most: float) -> float:
        return self.random.uniform(least, most)

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability


world = World()


class Killed(BaseException):
    """The kernel killed the process of the job."""
