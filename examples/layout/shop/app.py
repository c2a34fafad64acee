"""The app. It imports none of its tasks, so every module can import it."""

from holdfast import Holdfast

jobs = Holdfast(defaults={"timeout": "5m"})  # HOLDFAST_URL, or an embedded server
