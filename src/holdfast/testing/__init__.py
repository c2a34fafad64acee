"""Testing: runs an app's jobs in the test's own process, on a real store, with a clock that the test controls.

    with running_server() as url, use(jobs, url) as bench:
        signup("ann@example.org")    # enqueues
        bench.run_until_empty()      # claim ──▶ call ──▶ finish, as a worker does
        bench.advance("20s")         # the store's time, not the machine's

There is no worker: jobs run one after the other in this process, so timeouts do not apply. Nothing is killed, except by
`crash_everywhere`, which kills a job at each of its positions.
"""

from holdfast.testing.crashes import acrash_everywhere, crash_everywhere
from holdfast.testing.direct_call import running_job
from holdfast.testing.environment import running_server, use
from holdfast.testing.workbench import Workbench

__all__ = ["Workbench", "acrash_everywhere", "crash_everywhere", "running_job", "running_server", "use"]
