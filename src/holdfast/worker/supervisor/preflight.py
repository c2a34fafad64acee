"""The check of the server by the doctor, once, before the first claim."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from holdfast.doctor import ServerFacts, aprobe_server, missing_persistence, reasons_to_refuse, server_name
from holdfast.server.home import NotTrusted
from holdfast.store import Address, AsyncStore
from holdfast.worker.retrying_store import OutageLog, retry_until_answered

log = logging.getLogger("holdfast.worker")


class Preflight(NamedTuple):
    """The result of the check."""

    passed: bool
    server: str = ""  # such as "Valkey 9.1.2"; empty if unknown


async def check_server(address: Address, stopping: asyncio.Event, *, accept_data_loss: bool) -> Preflight:
    """Check a server and log why it can lose jobs. It passes if it cannot, or data loss is accepted."""
    try:
        facts = await _probe(address, stopping)
        found = reasons_to_refuse(facts)
    except NotTrusted as error:
        log.error("%s", error)
        return Preflight(False)
    except Exception:  # a bug of the check; work anyway
        log.exception("could not check %s", address.display)
        return Preflight(True)
    for finding in found:
        log.error("%s: %s %s", finding.code, finding.means, finding.advice)
    if forgetting := missing_persistence(facts):
        log.warning("%s: %s %s", forgetting.code, forgetting.means, forgetting.advice)
    if found and not accept_data_loss:
        log.error(
            "%s can lose jobs, so this worker does not start; use --accept-data-loss to start anyway", address.display
        )
    return Preflight(accept_data_loss or not found, server_name(facts))


async def _probe(address: Address, stopping: asyncio.Event) -> ServerFacts:
    """Probe the server once it answers. Return no facts if the worker stops before that."""
    store, outage = AsyncStore(address), OutageLog("retrying")

    async def probe() -> ServerFacts:
        if stopping.is_set():
            return ServerFacts()
        facts = await aprobe_server(store)
        outage.answered()
        return facts

    def give_up(error: Exception) -> bool:
        return isinstance(error, NotTrusted)

    try:
        return await retry_until_answered(probe, give_up=give_up, on_error=outage.failed)
    finally:
        await store.close()
