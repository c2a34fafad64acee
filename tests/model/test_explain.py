"""In random states, the jobs that explain calls ready are handed out by the next claims, and no others."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.batch_rules import BatchRules
from tests.model.explain_rules import ExplainRules
from tests.model.job import Steps
from tests.model.mark_rules import Marking
from tests.model.pool_rules import PoolRules
from tests.model.test_model import backend_server

MET = {"ready", "not-due", "ended"}  # others are rare here: see tests/store/lua/test_explain_and_claim.py


@pytest.mark.timeout(0)
def test_in_random_states_explain_and_claim_agree() -> None:
    class Here(ExplainRules, Marking, BatchRules, PoolRules):
        pass

    ExplainRules.seen.clear()
    shrinks = os.environ.get("HOLDFAST_MODEL_SHRINK") != "0"
    phases = [phase for phase in Phase if shrinks or phase != Phase.shrink]
    with backend_server("valkey") as url:
        Here.url, Here.steps_of_a_call = url, Steps()
        ends = time.monotonic() + 60 * float(os.environ.get("HOLDFAST_MODEL_MINUTES", "0"))
        while True:
            run_state_machine_as_test(
                Here,
                settings=settings(
                    max_examples=25, stateful_step_count=50, deadline=None, print_blob=True, phases=phases,
                    report_multiple_bugs=False,
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
                ),
            )  # fmt: skip
            if time.monotonic() >= ends:
                break
    assert {*ExplainRules.seen} >= MET, dict(ExplainRules.seen)
