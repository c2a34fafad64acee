"""The limit: redis-py, and a script that stores a hash and an index entry per job, or takes and ends one. No safety.

enqueue    one EVALSHA per job                 bulk       100 jobs in each EVALSHA
work N     N jobs in each call                 work pipe  one job in each call, 100 calls in each pipeline
work forks a process for each job

With BENCH_LIST a list instead of a script: RPUSH, and a worker that blocks in BLPOP (work list).
"""

import itertools
import os
import time
from functools import partial

import common
import redis

client = redis.Redis.from_url(common.URL)
PUT = client.register_script("""
for place = 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1] .. ARGV[place], 's', 'w', 'p', ARGV[place + 1])
  redis.call('ZADD', KEYS[1], 1, ARGV[place])
end
return 1
""")
TAKE = client.register_script("""
for place = 2, #ARGV do redis.call('HSET', KEYS[1] .. ARGV[place], 's', 's', 'r', '1') end
local taken = redis.call('ZPOPMIN', KEYS[1], ARGV[1])
local reply = {}
for place = 1, #taken, 2 do
  reply[#reply + 1] = taken[place]
  reply[#reply + 1] = redis.call('HGET', KEYS[1] .. taken[place], 'p')
end
return reply
""")
_numbers = itertools.count()
_prefix = f"{os.getpid():012d}"


def _job() -> list[bytes]:
    return [b"%s%06d" % (_prefix.encode(), next(_numbers)), b'{"number":1}']


async def send(kind: str, value: int) -> None:
    if "BENCH_LIST" in os.environ:
        client.rpush("list", f"{kind} {value}")
    else:
        PUT(keys=["bare"], args=_job())


async def bulk(numbers) -> None:
    for first in range(0, len(numbers), 100):
        PUT(keys=["bare"], args=[part for _ in numbers[first : first + 100] for part in _job()])


def work(size: int) -> None:
    done: list[bytes] = []
    while True:
        reply = TAKE(keys=["bare"], args=[size, *done])
        done = reply[::2]
        for payload in reply[1::2]:
            common.count(len(payload))
        if not done:
            time.sleep(0.005)


def work_pipelined(size: int) -> None:
    done: list[list[bytes]] = []
    client.script_load(TAKE.script)
    while True:
        pipe = client.pipeline(transaction=False)
        for place in range(size):
            pipe.evalsha(TAKE.sha, 1, "bare", 1, *(done[place] if place < len(done) else ()))
        replies = pipe.execute()
        done = [reply[::2] for reply in replies if reply]
        for payload in (part for reply in replies for part in reply[1::2]):
            common.count(len(payload))
        if not done:
            time.sleep(0.005)


def work_forks(most: int) -> None:
    """A process for each job; of one that ends in an error nobody hears."""
    alive = 0
    done: list[bytes] = []
    while True:
        reply = TAKE(keys=["bare"], args=[1, *done])
        done = reply[::2]
        if not done:
            time.sleep(0.005)
            continue
        if os.fork() == 0:
            common.count(1)
            os._exit(0)
        alive += 1
        if alive == most:
            os.wait()
            alive -= 1


def work_list() -> None:
    while True:
        kind, value = client.blpop("list")[1].split()
        (common.stamp if kind == b"stamp" else common.count)(int(value))


KINDS = {
    "pipe": lambda: work_pipelined(100),
    "list": work_list,
    "forks": lambda: work_forks(4),
    **{str(n): partial(work, n) for n in (1, 10, 100)},
}

if __name__ == "__main__":
    common.serve(send, bulk, KINDS)
