"""The app of the tests of failure groups: its tasks fail as the examples of the documents say, with retries."""

from __future__ import annotations

import smtplib
import time

from holdfast import Holdfast

jobs = Holdfast()


@jobs.task(queue="mail", retries=1, backoff="1ms")
def connect() -> None:
    raise ConnectionError("no answer")


@jobs.task(queue="mail", retries=1, backoff="1ms")
def send() -> None:
    raise smtplib.SMTPServerDisconnected("it hung up")


@jobs.task(queue="video", retries=1, backoff="1ms")
def read() -> None:
    raise OSError("no such disk")


@jobs.task(queue="video", retries=1, backoff="1ms", memory="100MiB")
def eat() -> None:
    eaten = []
    while True:
        eaten.append(b"x" * 10_000_000)
        time.sleep(0.02)


@jobs.task(queue="video", retries=1, backoff="1ms", timeout="100ms")
def last() -> None:
    time.sleep(1000)


@jobs.task(queue="video", retries=1, backoff="1ms", stalled="100ms")
def hang() -> None:
    time.sleep(1000)


@jobs.task(queue="video", crashes=0)
def die() -> None:
    raise SystemExit(3)
