"""Models and other classes go through real workers: from a web application to a task, and back as a result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from holdfast import Holdfast, JobFailed
from holdfast.job.options import CheckedOptions
from holdfast.task.task import BoundCall, make_task
from holdfast.testing import use
from tests.apps import types_app as app
from tests.support.servers import running_server
from tests.support.workers import Crew, new_crew

ORDER = app.Order(
    lines=[app.Line(product="tea", price=Decimal("2.50"), count=2)], payment=app.Invoice(address="Elm Street")
)
RECEIPT = app.Receipt(total=Decimal("5.00"), paid_by="invoice", steps=2)


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        crew.app.tasks.update(app.jobs.tasks)
        crew.start("--processes", "2", app="tests.apps.types_app")
        yield crew


def test_a_web_application_passes_its_request_model_on_to_a_task(staff: Crew) -> None:
    async def post(*bodies: object) -> list[httpx.Response]:
        transport = httpx.ASGITransport(app.make_web(staff.app))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as web:
            answers = [await web.post("/orders", json=body) for body in bodies]
        await staff.app.aclose()
        return answers

    no_order = {"lines": [{"product": "tea", "price": -1}], "payment": {}}
    answer, refused = asyncio.run(post(ORDER.model_dump(mode="json"), no_order))
    assert answer.status_code == 200
    assert refused.status_code == 422
    job = staff.app.get(answer.json()["job"])
    assert job.result(timeout="30s") == RECEIPT
    assert staff.outcomes(job) == ["error", "succeeded"]


def test_attrs_classes_paths_numbers_of_numpy_and_own_classes_go_there_and_back(staff: Crew) -> None:
    label = staff.put(app.print_label, app.Label(Path("/a"), np.float64(1.5), app.Money(99))).result(timeout="30s")
    assert (label.path, label.weight, label.price.cents) == (Path("/a"), np.float64(3), 100)
    assert type(label.weight) is np.float64


def test_a_job_continues_as_another_task_with_a_model(staff: Crew) -> None:
    assert staff.put(app.begin, ORDER).result(timeout="30s") == RECEIPT


def test_a_job_reads_the_models_that_its_dependencies_returned(staff: Crew) -> None:
    orders = [staff.put(app.settle, ORDER) for _ in range(2)]
    assert staff.put(app.collect.options(after=orders)).result(timeout="30s") == Decimal(10)


def test_json_of_another_program_is_validated_by_the_worker(staff: Crew) -> None:
    def unknown() -> None: ...

    def call(id: str, payload: object) -> BoundCall[None]:
        task = make_task(unknown, staff.app, CheckedOptions(retries=1, backoff=0), app.settle.name)
        return BoundCall(id, task, msgspec.json.encode(payload))

    good = staff.app.enqueue(call("good", {"order": ORDER.model_dump(mode="json")}))
    assert staff.app.get(good.id).result(timeout="30s") == RECEIPT
    lines = [{"product": "tea", "price": -1}]
    bad = staff.app.enqueue(call("bad", {"order": {"lines": lines, "payment": {"kind": "cash"}}}))
    with pytest.raises(JobFailed) as failed:
        bad.result(timeout="30s")
    assert "the stored arguments do not fit (order: " in str(failed.value)
    assert "Input should be greater than 0 - at `$.lines[0].price`" in str(failed.value)


def test_the_workbench_shows_and_runs_calls_with_models(server_url: str) -> None:
    with use(app.jobs, server_url) as bench:
        job = app.settle.enqueue(ORDER)
        assert bench.enqueued(app.settle) == [{"order": ORDER}]
        bench.run_until_empty()
        assert job.result(timeout=0) == RECEIPT


def test_the_command_line_reads_models_as_json() -> None:
    from holdfast.cli.calls import make_call

    word = f"order={ORDER.model_dump_json()}"
    assert make_call(app.settle, [word], checked=True).payload == app.settle.bind(ORDER).payload
    assert make_call(app.print_label, ['{"path":"/a","weight":1.5,"price":99}'], checked=True).payload
    with pytest.raises(ValueError, match=r"argument 'order' does not fit its type: Field required - at `[$].payment`"):
        make_call(app.settle, ['order={"lines":[]}'], checked=True)


def test_a_type_is_declared_for_all_apps_of_the_process() -> None:
    other = Holdfast("redis://localhost")

    def pay(amount: app.Money) -> None: ...

    assert other.task(name="pay")(pay).bind(app.Money(3)).payload == b'{"amount":3}'
