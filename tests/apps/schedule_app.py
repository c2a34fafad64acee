"""A task whose schedule is another in each release."""

from __future__ import annotations

import os

from holdfast import Holdfast, every

app = Holdfast()


@app.task(schedule=every(os.environ.get("PERIOD", "1h")))
def report() -> None: ...
