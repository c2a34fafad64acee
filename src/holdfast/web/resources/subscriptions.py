"""Subscriptions of event handlers: listed, paused, resumed and removed. Apps declare them."""

from __future__ import annotations

from holdfast.client.finding import find
from holdfast.client.subscriptions import Subscription
from holdfast.records.subscriptions import SUBSCRIPTIONS
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, cut
from holdfast.web.resource import Listed, ListOf, Resources

routes = Resources()


@routes.get("/subscriptions", reply=ListOf(SUBSCRIPTIONS), scope="visible", client="subscriptions")
async def list_subscriptions(call: Call, query: ListQuery) -> Listed:
    """List subscriptions, what they have delivered, and how far they lag behind."""
    found = cut(call.visible(await call.app.asubscriptions()), query, lambda each: each.name)
    return Listed(items=SUBSCRIPTIONS.records(found.values), next=found.next)


@routes.get(
    "/subscriptions/{subscription}", reply=SUBSCRIPTIONS, scope="visible", client=("subscriptions", "get_subscription")
)
async def show_subscription(call: Call, subscription: str) -> Record:
    """Show a subscription, what it has delivered, and how far it lags behind."""
    return SUBSCRIPTIONS.record(await find_subscription(call, subscription))


@routes.post("/subscriptions/{subscription}:pause", reply=SUBSCRIPTIONS, scope="visible", client="pause_subscription")
async def pause_subscription(call: Call, subscription: str) -> Record:
    """Deliver no more events to a handler."""
    await find_subscription(call, subscription)
    await call.app.apause_subscription(subscription)
    return SUBSCRIPTIONS.record(await find_subscription(call, subscription))


@routes.post("/subscriptions/{subscription}:resume", reply=SUBSCRIPTIONS, scope="visible", client="resume_subscription")
async def resume_subscription(call: Call, subscription: str) -> Record:
    """Deliver the events since a subscription was paused, as far as they are kept, and all that follow."""
    await find_subscription(call, subscription)
    await call.app.aresume_subscription(subscription)
    return SUBSCRIPTIONS.record(await find_subscription(call, subscription))


@routes.delete("/subscriptions/{subscription}", role="admin", scope="visible", client="unsubscribe")
async def unsubscribe(call: Call, subscription: str) -> None:
    """Remove a subscription; jobs of its handler stay.

    One that an app declares is added again when a worker of the app starts, and then begins anew: pause it instead.
    """
    await find_subscription(call, subscription)
    await call.app.aunsubscribe(subscription)


async def find_subscription(call: Call, name: str) -> Subscription:
    """Return a subscription of a queue that the user may see; raise NotFound, with similar names, if there is none."""
    return find("subscription", {each.name: each for each in call.visible(await call.app.asubscriptions())}, name)
