"""A rule of the model's machine: the jobs that explain calls ready are those that the next claims hand out."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hypothesis.stateful import rule

from tests.model.machine import NAMESPACE, Machine
from tests.support.explanations import Comparison


class ExplainRules(Machine):
    """Asks about copies of the store, so that the model sees nothing of it."""

    seen: ClassVar[Counter[str]] = Counter()  # of all machines

    def __init__(self) -> None:
        super().__init__()
        self.explanations = Comparison(self.url, NAMESPACE, self.clock)

    def teardown(self) -> None:
        ExplainRules.seen.update(self.explanations.seen)
        self.explanations.client.close()
        super().teardown()

    @rule()
    def explain_against_claim(self) -> None:
        self.explanations.compare({*self.known_ids, *self.model.jobs})
