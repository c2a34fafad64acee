"""Enqueue a hundred jobs of acme, then five each of bell and caro, and print the order in which they run."""

from pathlib import Path

from tasks import jobs, work

TENANTS = ["acme"] * 100 + ["bell"] * 5 + ["caro"] * 5


def serve(queue: str, *, fair: bool) -> str:
    log = Path(f"{queue}.log")
    log.unlink(missing_ok=True)
    jobs.pause(queue)
    calls = [
        work.options(queue=queue, share=tenant if fair else None).bind(tenant, str(log.resolve())) for tenant in TENANTS
    ]
    stored = jobs.enqueue_many(calls)
    jobs.resume(queue)
    for job in stored:
        job.result(timeout="1m")
    return log.read_text()


jobs.set_share_weight("fair", "caro", 2)  # caro pays for two turns
for queue in ("plain", "fair"):
    order = serve(queue, fair=queue == "fair")
    print(f"{queue}: {order[:30]}...")
    for tenant in ("bell", "caro"):
        print(f"  the last of {tenant}'s five was number {order.rindex(tenant[0]) + 1} of {len(order)}")
