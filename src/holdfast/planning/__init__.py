"""When will the backlog be gone, and what would more workers do? A simulation of what the store knows.

    inputs.py  ──▶  model.Snapshot  ──▶  simulation.py  ──▶  forecasts.py  ──▶  plans.Plan
    reads the store                      one run, pure       range, reason      what users get

`fleet.py` has the workers, and how their number is changed. Nothing imports this package before a plan is asked for.
"""
