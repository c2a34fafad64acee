"""Call an API that allows five calls a second."""

import os
from http.client import HTTPConnection

from holdfast import Holdfast, Limit, Snooze

jobs = Holdfast()
PORT = int(os.environ.get("API_PORT", "8765"))


@jobs.task(limits=Limit("api", 5, per="1s"), runner="thread")  # for all workers on all machines together
def ask(number: int) -> str:
    api = HTTPConnection("127.0.0.1", PORT, timeout=10)
    api.request("GET", f"/{number}")
    answer = api.getresponse()
    text = answer.read().decode()
    if answer.status == 429:  # the limit spaces the starts, but the network may still bunch the calls
        raise Snooze("1s")
    return text
