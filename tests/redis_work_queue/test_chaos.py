"""Every program of a shared queue is killed at random: nothing is lost, and little is done twice.

A few seconds by default; HOLDFAST_SHARED_QUEUE_SECONDS=60 runs longer. The counts are printed: use `pytest -s`.
"""

from __future__ import annotations

import os

import pytest

from tests.redis_work_queue import chaos

SECONDS = float(os.environ.get("HOLDFAST_SHARED_QUEUE_SECONDS", "4"))
pytestmark = [
    pytest.mark.timeout(240 + 4 * SECONDS),
    pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning"),
]


def test_beside_a_client_of_the_document_nothing_is_lost_or_completed_twice() -> None:
    report = chaos.run(SECONDS, "document")
    print(f"the document and Holdfast, {SECONDS:g} s: {report}")
    assert report.added > 0
    assert report.lost == []
    assert report.doubles == []


def test_beside_version_0_1_5_there_are_no_more_losses_or_doubles_than_without_holdfast() -> None:
    control, report = chaos.run(SECONDS, "0.1.5", alone=True), chaos.run(SECONDS, "0.1.5")
    print(f"0.1.5 alone, {SECONDS:g} s: {control}\n0.1.5 and Holdfast, {SECONDS:g} s: {report}")
    assert report.added > 0
    assert report.lost == []
    assert not [pair for pair in report.by if "holdfast" in pair], "an item that Holdfast completed was completed again"
    # Two clients of 0.1.5 complete an item if a cleaner of 0.1.5 has moved its id meanwhile. In a few seconds that is a
    # matter of luck on either side, so some more than in the control run are no regression.
    assert len(report.doubles) <= len(control.doubles) + 3
