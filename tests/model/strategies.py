"""Strategies for the random commands of `test_model`: few names, so that they collide, and boundary values."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.constants import MAX_DURATION, MAX_RUN_OPTIONS, MAX_SPREAD, MAX_WAITS
from holdfast.job.failure import Failure, encode
from holdfast.job.outcome import Advanced, Blocked, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.job.retries import RetryWait
from tests.model.core import worker_of
from tests.support.new_job import NewJob

IDS = [*"abcd", "A", "user:1@x/y", "part~3", "z" * 128]
QUEUES = ["mail", "video", "a.b-c_D"]
BATCHES = ["b", "import:7_x.y-z"]
LIMIT_NAMES = ["api", "db"]
LIMITS = ["api", "api:x", "api:y/1", "db"]
SHARES = ["acme", "b:1"]
KEYS = ["user:1@x/y", "x" * 128]
EXECUTORS = ["n1/w1.0", "n1/w1.1", "n1/w2.0", "n.2/w3.10"]
DETACHED = ["detached/t1.0", "detached/t2.0"]  # that nobody is
WORKERS = sorted({worker_of(executor) for executor in EXECUTORS})
LEASES = [1000, 2000, 30_000, 60_000]
DAY = 86_400_000
STEPS = [0, 1, 400, 501, 1000, 1001, 2500, 5000, 16_000, 30_000, 45_000, 120_000, 3_600_000]
LEAPS = [DAY, 8 * DAY, 31 * DAY]
BACK = [-1, -1000, -20_000, -7_200_000]
BYTES = [b"", b"1", b">", b">>", b"p" * 63, b"p" * 64, b"p" * 65, b"\0" * 64, b"\xff" * 300]
POOLS = [
    "strict video *",
    "strict * !video",
    "round-robin *",
    "weighted mail=3 * !video",
    "fair mail=2 *",
    "fair a.b-c_D video",
]
SETTINGS = {
    "lease": [1000, 2000, 45_000],
    "grace": [0, 1, 20_000],
    "retries": [0, 1, 5],
    "backoff": [0, 1, 1000],
    "crashes": [0, 1],
    "lost": [0, 1],
    "timeout": [0, 1000],
    "keep_succeeded": [0, 1000, 3_600_000],
    "keep_succeeded_count": [0, 1, 3],
    "keep_failed": [0, 1000, 3_600_000],
    "keep_failed_count": [0, 1, 3],
    "keep_cancelled": [0, 1000, 3_600_000],
    "keep_cancelled_count": [0, 1, 3],
    "history": [1, 2, 5],
    "concurrency": [0, 1, 2],
}

ids = st.sampled_from(IDS)
queue_names = st.sampled_from(QUEUES)
queue_lists = st.lists(queue_names, min_size=1, max_size=4)
served_lists = st.lists(queue_names, max_size=3) | st.sampled_from(
    [["*"], ["video", "*", "!mail"], ["m*", "|", "*", "!m*", "!video"], ["!video", "*", "|", "video"]]
)
blobs = st.sampled_from(BYTES)
small = st.sampled_from([None, 0, 1, 1, 2])
seldom = st.sampled_from([None, None, None, True])
reasons = st.sampled_from(["", "because", "é" * 28])
notes = st.lists(st.sampled_from(["", "half of it", "€" * 333]), max_size=3)
words = st.sampled_from(["seen", "€" * 333])
fields = st.tuples(
    st.dictionaries(st.sampled_from(["owner", "a.b-c_D"]), st.sampled_from(["", "é", "x" * 4096])),
    st.lists(st.sampled_from(["owner", "none"]), max_size=2),
)
LONG_TAG = "é" * 32  # three of them are too long for a record
TAGS = ["a", "b", LONG_TAG, "}:q:mail:succeeded", "two words"]
SCOPES = ["/a", "/a/b", "/a/b/c.d:1@-", "/ab", "/" + "/".join("12345678")]
tags = st.lists(st.sampled_from(TAGS), min_size=1, max_size=4, unique=True)
faults = st.sampled_from(["none"] * 6 + ["repeated", "lost", "lost and repeated"])
setting_names = st.sampled_from(sorted(SETTINGS))
settings_set = setting_names.flatmap(
    lambda name: st.sampled_from(SETTINGS[name]).map(lambda value: {name: value})
) | st.just({"keep_succeeded_count": 1, "history": 2, "grace": 500})

limits = st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3, unique=True).map(tuple)
new_jobs = st.builds(
    NewJob,
    id=ids,
    payload=blobs,
    queue=queue_names,
    task=st.sampled_from(["send", "transcode.all"]),
    priority=st.none() | st.sampled_from([-256, -1, 0, 1, 255]),
    delay=st.none() | st.sampled_from([0, 1, 1000, 30_000]),
    retries=small,
    crashes=small,
    lost=small,
    timeouts=small,
    stalls=small,
    out_of_memory=small,
    backoff=st.none() | st.sampled_from([0, 1, 1000]),
    timeout=st.none() | st.just(60_000),
    codec=st.sampled_from([None, "json", "raw"]),
    unique=st.sampled_from([None, None, *KEYS]),
    unique_for=st.sampled_from([None, "queued", "pending", "kept", "kept", 600_000]),
    keep=st.sampled_from([None] * 7 + [False, 1000, 5000, 3_600_000, 40 * DAY]),
    fields=st.sampled_from([None] * 4 + [{}, {"owner": "é"}, {"a.b-c_D": "x" * 4096, "ticket": ""}]),
    tags=st.sampled_from([None] * 4 + [("a",), ("b", "a"), tuple(TAGS), ()]),
    scope=st.sampled_from([None] * 5 + SCOPES),
    at_most_once=seldom,
    limits=st.none() | limits,
    share=st.sampled_from([None, None, None, *SHARES]),
    deadline=st.sampled_from([None] * 9 + [900, 60_000, 60_000]),
    run=st.sampled_from([None, None, '{"soft_timeout":1}', "x" * MAX_RUN_OPTIONS]),
)
distinct_jobs = st.lists(new_jobs, min_size=1, max_size=3, unique_by=lambda job: job.id)
policies = st.sampled_from(["block", "cancel", "run"])
others = st.lists(ids, min_size=1, max_size=2, unique=True).map(tuple) | st.lists(ids, min_size=1).map(tuple)
stages = st.fixed_dictionaries(
    {},
    optional={
        "queue": queue_names,
        "priority": st.sampled_from([-1, 1]),
        "delay": st.sampled_from([0, 1000]),
        "retries": st.just(0),
        "timeouts": st.sampled_from([0, 1]),
        "limits": limits,
        "share": st.sampled_from(SHARES),
        "after": others,
        "on_failed": policies,
        "deadline": st.sampled_from([500, 60_000]),
        "at_most_once": st.just(True),
        "run": st.sampled_from(["{}", "x" * 100]),
        "fields": st.sampled_from([{}, {"owner": "next"}]),
        "tags": tags,
        "keep_tags": st.just(True),
        "scope": st.sampled_from(SCOPES),
    },
)


def shares_or_weights(count: int) -> st.SearchStrategy[dict[str, list[int]]]:
    """How a claim chooses between queues, besides their order."""
    weights = st.lists(st.sampled_from([1, 1, 2, 3, 1000]), min_size=count, max_size=count)
    return (
        st.just({})
        | st.builds(lambda some: {"shares": some}, st.lists(st.integers(0, 3), max_size=4))
        | st.builds(lambda some: {"weights": some}, weights)
    )


LONG_GROUP = "some.module.of.a.library.that.likes.long.names.SomethingWentWrongSomewhere"  # records have 64 bytes of it
waits = st.builds(
    RetryWait,
    st.lists(st.sampled_from([0, 1, 999, 30_000, MAX_DURATION]), max_size=3).map(tuple)
    | st.just(tuple(range(100, 100 + MAX_WAITS))),
    st.sampled_from([None, None, 0, 1, 1500, MAX_DURATION]),
    st.sampled_from([0, 0, 1, 99, 500, MAX_SPREAD]),
)
failures = st.builds(
    Failure,
    type=st.sampled_from(["ValueError", "tasks.Late"]),
    message=st.sampled_from(["", "of 7"]),
    traceback=st.sampled_from(["", "Traceback\n" * 9]),
    group=st.just("ValueError"),
    fingerprint=st.sampled_from(["", "0123456789abcdef", "fedcba9876543210"]),
    place=st.sampled_from(["", "tasks:send"]),
).map(encode)
errors = st.one_of(blobs, failures, failures)
WORK_DONE = Error(b"", "result-not-stored", final="refused")
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeed, blobs),
    st.builds(Succeed, blobs, st.sampled_from(["", "it does not fit"])),
    st.builds(
        Error,
        errors,
        st.sampled_from(
            [
                "ValueError",
                LONG_GROUP,
                "result-not-stored",
                "timeout",
                "stalled",
                "memory",
                "a \x1b}:q:default:failed \u00e9",
                "",
                "\u00e9" * 40,
            ]
        ),
        final=st.sampled_from([False, False, False, True, "refused", "not_retryable"]),
        delay=st.sampled_from([None, None, None, 0, 1, 700, 90_000]),
        reason=st.sampled_from(["", "", "not retried: ValueError is in not_on"]),
        wait=st.none() | waits,
    ),
    st.builds(Crash, errors),
    st.builds(Release, reasons, st.sampled_from([0, 2000])),
    st.builds(Snoozed, st.sampled_from([0, 3000])),
    st.builds(Unknown),
    st.builds(Cancelled),
    st.builds(Blocked, others),
    st.builds(Advanced, st.sampled_from(["send", "next"]), stages, blobs),
)
endings: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from([Succeed(b"1"), Succeed(b"1"), Error(b"", "ValueError", final=True), WORK_DONE, Snoozed(0)]),
    st.builds(Blocked, others),
)
plain_jobs = st.builds(
    NewJob, id=ids, payload=blobs, queue=queue_names, task=st.just("send"), share=st.sampled_from([None, *SHARES])
)
