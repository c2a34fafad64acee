"""Testing: runs an app's jobs in the test's own process, on a real store, with a clock that the test controls.

    with running_server() as url, use(jobs, url) as bench:
        signup("ann@example.org")    # enqueues
        bench.run_until_empty()      # claim ──▶ call ──▶ finish, as a worker does
        bench.advance("20s")         # the store's time, not the machine's

There is no worker: jobs run one after the other in this process. So no job is killed, and timeouts do not apply.
"""

from holdfast.testing.direct_call import running_job
from holdfast.testing.environment import running_server, use
from holdfast.testing.workbench import Workbench

__all__ = ["Workbench", "running_job", "running_server", "use"]
