"""The story of the week: what customers do, and what goes wrong. Times are in hours before now.

120    the mail server refuses connections for 40 minutes
 72    revision 416 loses tax numbers; three hours later 417 has them again, and nora retries what failed
 36    ben starts the training of a ranker
 26    nora cancels a campaign that would have sent the wrong template
 20    node gpu-1 dies; the training continues on gpu-2, where it runs out of memory once
  2    ana pauses the queue imports, and its schedule
0.7    a sale begins
0.6    revision 418 is rolled out: charges in dollars time out
0.4    uploads arrive faster than the workers of the queue video transcode them
0.5    the systems of a customer need minutes to answer: its webhooks wait for each other
0.05   the worker of gpu-2 is drained, and takes its time
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bench.week.shop import webhooks
from bench.week.shop.world import world
from bench.week.simulation import Clock
from bench.week.workers import Hints, Kind, SimulatedWorker
from holdfast import Holdfast
from holdfast.client.limits import declarations
from holdfast.store import acting_as, commands

HOUR, DAY = 3600.0, 86400.0
RELEASES = ((150.0, 414), (99.0, 415), (72.0, 416), (69.0, 417), (0.63, 418))
MAX_STEP, LIVE_STEP = 120.0, 1.0  # seconds between two looks at what is due
SALE = 260.0  # orders an hour, at the peak of the day
RACKS = (
    Kind("rack1-a", ("billing", "mail", "webhooks"), 16),
    Kind("rack1-a", ("search", "reports", "imports"), 8),
    Kind("rack1-b", ("billing", "mail", "imports"), 16),
    Kind("rack1-b", ("webhooks", "search", "thumbnails", "reports"), 16),
)
EDGES = (Kind("edge-1", ("video", "thumbnails"), 4), Kind("edge-2", ("video", "thumbnails"), 4))
GPUS = (Kind("gpu-1", ("ml-train",), 2), Kind("gpu-2", ("ml-train",), 2))
COUNTRIES = ("DE", "DE", "DE", "FR", "NL", "US")
CUSTOMERS = ("acme", "borealis", "cobalt", "dunlin", "erlang-foods", "fjord", "gannet", "halyard")


class Story:
    """Plays the week. `scale` multiplies the number of jobs of customers."""

    def __init__(self, app: Holdfast, clock: Clock, end: float, scale: float) -> None:
        self.app, self._clock, self._end, self._scale = app, clock, end, scale
        self.workers: list[SimulatedWorker] = []
        self._hints = Hints(self.note_enqueued)
        self.jobs: dict[str, str] = {}  # ids of jobs that the story knows, by a word
        self._orders = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # Time

    async def _until(self, hours: float) -> None:
        """Wait until so many hours before the end. What would be before the beginning is left out of the story."""
        left = self._end - hours * HOUR - self._clock.seconds
        if left < 0:
            raise asyncio.CancelledError
        await asyncio.sleep(left)

    def _begin(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _daylight(self) -> float:
        """Return how busy people are: 0.15 at night, up to 1.6 by day, less on two days of the week.

        Whoever looks at the week looks at it by day.
        """
        ago = (self._end - self._clock.seconds) / HOUR
        busy = 0.15 + 1.45 * math.exp(-((((ago + 11) % 24 - 12) / 4.6) ** 2))
        return busy * (0.55 if 60 < ago < 108 else 1.0)

    async def play(self) -> None:
        """Play the story; it never ends."""
        begin = (self._end - self._clock.seconds) / HOUR
        world.revision = max((revision for hours, revision in RELEASES if hours > begin), default=413)
        self._declare()
        for kind in (*RACKS, *EDGES, *GPUS):
            self._start_worker(kind)
        self._begin(self._look_after_timers())
        for story in (
            self._release_quietly, self._lose_mail_server, self._lose_tax_numbers, self._train, self._cancel_campaign,
            self._lose_gpu_node, self._pause_imports, self._have_sale, self._release_418, self._get_many_uploads,
            self._answer_slowly, self._drain_gpu_node,
        ):  # fmt: skip
            self._begin(story())
        await asyncio.gather(
            self._stream(26, 1, self._order),
            self._stream(20, 4, self._messages),
            self._stream(12, 6, self._images),
            self._stream(5, 1, self._upload),
            self._stream(3, 1, self._export),
            self._stream(0.25, 1, self._reminder),
        )

    async def _look_after_timers(self) -> None:
        """Do the upkeep of idle workers, and let them claim what has become due."""
        while True:
            found = self.app.upkeep()
            if found.processed:
                self._hints.queues.update(each.effective_options.queue or "" for each in self.app.tasks.values())
                self._wake()
            wait = found.wait or MAX_STEP
            await asyncio.sleep(min(max(LIVE_STEP, wait), LIVE_STEP if self._clock.is_live else MAX_STEP))

    def _wake(self) -> None:
        """Let workers with free slots claim, those with most first."""
        for worker in sorted(self.workers, key=lambda each: -each.free):
            worker.claim()

    def note_enqueued(self, queues: Iterable[str]) -> None:
        """Let workers claim from these queues some milliseconds later."""
        if not self._hints.queues.issuperset(queues):
            self._hints.queues.update(queues)
            asyncio.get_running_loop().call_later(world.between(0.002, 0.03), self._wake)

    # Releases

    def _declare(self) -> None:
        """Declare limits and schedules, as the workers of a release do."""
        app, run = self.app, self.app.store.run
        for limit in declarations(app.declared_limits.values(), world.revision):
            run(commands.declare_limit(**limit))
        for schedule in app.declared_schedules.values():
            run(commands.declare_schedule(**schedule | {"revision": world.revision}))

    async def _deploy(self, kinds: Iterable[Kind]) -> None:
        """Start workers of the current release, and drain those of the last."""
        self._declare()
        for kind in kinds:
            old = [each for each in self.workers if each.kind is kind and each.revision < world.revision]
            self._start_worker(kind)
            for worker in old:
                self._begin(self._drain(worker))
            await asyncio.sleep(40)

    def _start_worker(self, kind: Kind) -> None:
        self.workers.append(SimulatedWorker(self.app, self._clock, kind, self._hints))

    async def _drain(self, worker: SimulatedWorker) -> None:
        await worker.drain()
        self.workers.remove(worker)

    async def _release_quietly(self) -> None:
        """Deploy the releases that nobody notices."""
        for hours, revision in RELEASES[:2]:
            await self._until(hours)
            world.revision = revision
            await self._deploy((*RACKS, *EDGES))

    # What customers do

    async def _stream(self, per_hour: float, burst: int, make: Callable[[int], list[Any]]) -> None:
        """Enqueue calls, so many times an hour on average, in the rhythm of the day."""
        while True:
            rate = per_hour * self._scale * self._daylight() / HOUR
            wait = world.random.expovariate(rate)
            await asyncio.sleep(min(wait, 900.0))
            if wait <= 900.0:  # else look again: the day goes on
                number = 1 if burst == 1 else world.random.randrange(1, 2 * burst)
                self.app.enqueue_many(make(number))

    def _order(self, _: int) -> list[Any]:
        """Charge, invoice and send a receipt, one after the other; and tell another system."""
        self._orders += 1
        tasks, customer = self.app.tasks, world.random.choice(CUSTOMERS)
        order, country = f"2026-{70_000 + self._orders}", world.random.choice(COUNTRIES)
        more: dict[str, Any] = {
            "tags": [customer],
            "fields": {"order": order},
            "scope": f"/{country.lower()}/{customer}",
        }
        amount = int(world.random.lognormvariate(8.2, 0.8))
        charge = tasks["billing.charge_card"].options(**more).bind(order, amount, "USD" if country == "US" else "EUR")
        invoice = tasks["billing.invoice"].options(after=charge, **more).bind(order, country)
        receipt = tasks["mail.send"].options(after=invoice, **more).bind(f"orders@{customer}.example", "receipt")
        calls = [charge, invoice, receipt]
        if world.happens(0.6):
            host = world.random.choice(webhooks.HOSTS)
            limited = tasks["webhooks.deliver"].options(limits=f"webhook:{host}", **more)
            calls.append(limited.bind(host, "order.created", order))
        return calls

    def _messages(self, number: int) -> list[Any]:
        send = self.app.tasks["mail.send"]
        template = world.random.choice(["welcome", "password", "shipped", "review"])
        return [send.bind(f"{world.random.randrange(10**6):06d}@example.org", template) for _ in range(number)]

    def _images(self, number: int) -> list[Any]:
        make, image = self.app.tasks["thumbnails.make"], world.random.randrange(10**8)
        return [make.bind(f"uploads/{image + place}.jpg", 320) for place in range(number)]

    def _upload(self, _: int, segments: tuple[int, int] = (2, 14)) -> list[Any]:
        transcode, customer = self.app.tasks["video.transcode"], world.random.choice(CUSTOMERS)
        source = f"uploads/{customer}/{world.random.randrange(16**6):06x}.mov"
        call = transcode.options(tags=[customer], priority=world.random.choice([0, 0, 0, -5]))
        return [call.bind(source, world.random.choice(["h264-1080p", "av1-1080p"]), world.random.randrange(*segments))]

    def _export(self, _: int) -> list[Any]:
        customer = world.random.choice(CUSTOMERS)
        export = self.app.tasks["reports.export"].options(scope=f"/de/{customer}", unique=f"export-{customer}")
        return [export.bind(customer, 2025)]

    def _reminder(self, _: int) -> list[Any]:
        later = self.app.tasks["mail.send"].options(delay=f"{world.random.randrange(20, 70)}h", tags=["reminder"])
        return [later.bind(f"{world.random.randrange(10**6):06d}@example.org", "cart")]

    # What goes wrong

    async def _lose_mail_server(self) -> None:
        await self._until(120)
        world.mail_is_down = True
        await asyncio.sleep(2400)
        world.mail_is_down = False

    async def _lose_tax_numbers(self) -> None:
        await self._until(72)
        world.revision, world.loses_tax_numbers = 416, True
        await self._deploy(RACKS)
        await self._until(69)
        world.revision, world.loses_tax_numbers = 417, False
        await self._deploy((*RACKS, *EDGES))
        with acting_as("nora"):
            self.app.retry_all(task="billing.invoice", state="failed", since="4h")
        self.note_enqueued(["billing"])

    async def _train(self) -> None:
        await self._until(36)
        tasks = self.app.tasks
        train = tasks["ml.train_ranker"].options(fields={"ticket": "ML-2231"}, tags=["nightly"])
        first = train.bind("s3://sets/clicks", 60, 4096, 9007199254740993)
        evaluate = tasks["ml.evaluate"].options(after=first).bind("ranker")
        publish = tasks["ml.publish"].options(after=evaluate).bind("ranker")
        with acting_as("ben"):
            self.jobs["training"] = self.app.enqueue_many([first, evaluate, publish])[0].id
            self.app.track(self.jobs["training"])
            self.app.note(self.jobs["training"], "ML-2231: with the clicks of last week")
        await self._until(5)
        self.jobs["second training"] = self.app.enqueue_many([train.bind("s3://sets/carts", 30, 2048, 7)])[0].id

    async def _lose_gpu_node(self) -> None:
        await self._until(20)
        for worker in [each for each in self.workers if each.kind.node == "gpu-1"]:
            worker.die()
            self.workers.remove(worker)
        await self._until(12.5)
        world.gpu_memory_is_short = True

    async def _cancel_campaign(self) -> None:
        await self._until(26.5)
        send = self.app.tasks["mail.send"].options(delay="4h", tags=["campaign-autumn"])
        self.app.enqueue_many([send.bind(f"reader{number}@example.org", "autumm") for number in range(60)])
        await self._until(26)
        with acting_as("nora"):
            self.app.cancel_all(tag="campaign-autumn", reason="wrong template")

    async def _pause_imports(self) -> None:
        await self._until(2.17)
        with acting_as("ana"):
            self.app.pause("imports")
            self.app.pause_schedule("imports.catalog")
            load = self.app.tasks["imports.load_part"]
            with self.app.batch("catalogue-migration") as batch:
                batch.enqueue_many([load.options(share="acme").bind("acme", part) for part in range(240)])

    async def _have_sale(self) -> None:
        await self._until(0.7)
        await self._stream(SALE / self._scale, 1, self._order)

    async def _release_418(self) -> None:
        await self._until(0.63)
        world.revision = 418
        await self._deploy(RACKS)
        world.gateway_loses_dollars = True

    async def _get_many_uploads(self) -> None:
        await self._until(0.4)
        for _ in range(50):
            self.app.enqueue_many(self._upload(0, (7, 20)))
            await asyncio.sleep(world.between(10, 30))

    async def _answer_slowly(self) -> None:
        await self._until(0.5)
        world.customer_is_slow = True

    async def _drain_gpu_node(self) -> None:
        await self._until(0.05)
        await self._deploy(GPUS[1:])
