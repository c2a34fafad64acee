"""Chaos: jobs that must not notice, while everything that they run on is killed or stopped: `make chaos`.

    run ──┬── place    a server and three workers, as processes; what is dead is started again
          ├── harm     what is killed or frozen, and when, by a seed
          ├── watch    looks into the store meanwhile, and tries writes that must be refused
          └── app      the jobs, which write all that they do to a ledger outside of the store
    checks             compares the ledger with the store: what was promised, and what was not kept
    record             what is printed

See `docs/chaos.md`.
"""
