"""An app whose import never ends, as one that waits for something that is not there."""

import threading

from holdfast import Holdfast

jobs = Holdfast()

print("imports", flush=True)
threading.Event().wait()
