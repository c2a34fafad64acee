"""A believable week of a shop, made by running its jobs under a moved clock: for looking at, tests and screenshots.

with fill_week(app) as week:
    week.beat()                  # workers that send no heartbeat for half a minute are silent

python -m bench.week             # the same, and the dashboard of it: `make web`
"""

from bench.week.week import Week, fill_week

__all__ = ["Week", "fill_week"]
