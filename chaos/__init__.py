"""Chaos testing: kill and freeze workers, jobs and the server while jobs run, and check that no promise is broken.

    run ──┬── processes   a server and three workers; each is restarted when it dies
          ├── faults      kills and freezes, chosen by a seed
          ├── observer    reads the store meanwhile, and tries writes that must be refused
          └── app, jobs   the jobs, which record everything they do in a ledger outside of the store
    checks                compares the ledgers with the store and reports broken promises
    report                what is printed at the end

`make chaos` runs it. See `docs/chaos.md`.
"""
