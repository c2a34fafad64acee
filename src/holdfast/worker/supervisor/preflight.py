"""Whether a worker trusts its server: the doctor is asked once, before anything is claimed."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from holdfast import errors
from holdfast.doctor import report
from holdfast.doctor.probe import Facts, agather
from holdfast.server.home import NotTrusted
from holdfast.store.store import Address, AsyncStore
from holdfast.worker.supervisor.retrying import TRY_AGAIN_AFTER

log = logging.getLogger("holdfast.worker")


class Trust(NamedTuple):
    """Whether to work with a server, and which it is: Valkey 9.1.2; '' if it does not tell."""

    is_trusted: bool
    server: str = ""


async def examine(address: Address, stopping: asyncio.Event, *, accept_data_loss: bool) -> Trust:
    """Say what is wrong with a server that loses jobs; return whether to go on."""
    try:
        facts = await _examine(address, stopping)
        found = report.refusals(facts)
    except NotTrusted as error:
        log.error("%s", error)
        return Trust(False)
    except Exception:  # of ours, about a server that answers as none before: no reason not to work
        log.exception("%s could not be examined", address.display)
        return Trust(True)
    for finding in found:
        log.error("%s: %s %s", finding.code, finding.means, finding.advice)
    if forgetting := report.forgets(facts):
        log.warning("%s: %s %s", forgetting.code, forgetting.means, forgetting.advice)
    if found and not accept_data_loss:
        log.error(
            "%s loses jobs, so this worker refuses it; start with --accept-data-loss to go on anyway", address.display
        )
    return Trust(accept_data_loss or not found, report.server_name(facts))


async def _examine(address: Address, stopping: asyncio.Event) -> Facts:
    """Ask the server, as soon as it is there. Who stops before that knows nothing."""
    store = AsyncStore(address)
    is_away = False
    try:
        while not stopping.is_set():
            try:
                facts = await agather(store)
            except NotTrusted:
                raise
            except errors.StoreUnavailable as error:
                if not is_away:
                    log.warning("%s; waiting for it", error)
                is_away = True
                await asyncio.sleep(TRY_AGAIN_AFTER)
            else:
                if is_away:
                    log.warning("the store is back")
                return facts
        return Facts()
    finally:
        await store.close()
