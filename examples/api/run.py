"""Start an API that refuses the sixth call of any second, and call it 25 times."""

import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from tasks import PORT, ask, jobs

answered: deque[float] = deque()
refused: list[str] = []
lock = Lock()


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        with lock:
            now = time.monotonic()
            may = sum(now - moment < 1 for moment in answered) < 5
            answered.append(now) if may else refused.append(self.path)
        self.send_response(200 if may else 429)
        self.end_headers()
        self.wfile.write(f"answer {self.path[1:]}".encode() if may else b"slow down")

    def log_message(self, format: str, *args: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", PORT), Api)
Thread(target=server.serve_forever, daemon=True).start()

begin = time.monotonic()
asked = jobs.enqueue_many([ask.bind(number) for number in range(25)])
answers = [job.result(timeout="2m") for job in asked]
for second in range(int(time.monotonic() - begin) + 1):
    print(f"second {second}:", "*" * sum(second <= moment - begin < second + 1 for moment in answered))
print(f"{len(answers)} answers, the last is {answers[-1]!r}; refused: {len(refused)}")
