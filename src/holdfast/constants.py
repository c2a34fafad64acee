"""Numbers that Python and the Lua library share, declared here and rendered into the library as the table `constants`.

The library enforces every limit. Python also checks a limit where it can report the problem earlier: when a task is
declared, called, or saves something. Sizes are in bytes, durations in milliseconds.
"""

from __future__ import annotations

# Calls
MAX_BATCH = 1000  # entries in any list that one call takes or returns
MAX_DEPENDENCIES = 10_000  # that one call adds or follows
DEFAULT_PAGE = 100  # entries that a listing call returns unless it has a limit
REPLY_TTL = 600_000  # how long a repeated call with the same token gets the same reply
MAX_CALL_REPLY = 64 << 10  # of a function of the app's own Lua, whose reply is kept for that time
MAX_EXTENSION = 1 << 20  # all files of the app's own Lua together

# Function libraries
LIBRARY_TTL = 30 * 24 * 60 * 60 * 1000  # how long after its last call a library is removed

# Operations
MAX_OPERATIONS = 100  # that run at once; that are kept
OPERATION_TIMEOUT = 5000  # after this time without a step, workers continue an operation
OPERATION_TTL = 30 * 24 * 60 * 60 * 1000  # how long after its start an operation that does not run is known

# Names, in characters
MAX_ID = 128  # of a job; a unique key
MAX_NAME = 100  # of a queue, task, schedule, step, failure group or attached field
MAX_KEY = 60  # a limit's name or key, a share
MAX_CALLER = 64  # who made a call, as events name it; in bytes

# Jobs
MAX_PAYLOAD = 1 << 20
MAX_RESULT = 1 << 20
MAX_CHECKPOINT = 256 << 10
MAX_ERROR = 256 << 10
MAX_TRACEBACK = 64 << 10
MAX_STEP_RESULT = 64 << 10
MAX_PROGRESS = 1024
MAX_RUN_OPTIONS = 3072  # the options that only workers read, as JSON
MAX_NOTE = 1000
MAX_NOTES = 100  # that one call saves
MAX_FIELDS = 64  # attached to a job
MAX_FIELD = 4096
MAX_FIELDS_OF_CALL = 16 << 20  # names and texts that one enqueue stores, of all its jobs together
MIN_KEEP = 1000  # the shortest time to live of an ended job
MAX_LIMITS_PER_JOB = 8
MAX_TAG = 64
MAX_TAGS_PER_JOB = 32
MAX_TAGS = 100_000  # of a namespace; further ones become the tag `other`
MAX_TRACKED = 10_000  # tracked jobs of a namespace
MAX_SCOPE = 128  # characters
MAX_SCOPE_DEPTH = 8  # parts
MAX_MARKS = 8_000  # tags and parts of scopes that one enqueue stores, of all its jobs together
MAX_SLOTS = 1_000_000  # of a limit on jobs that run at once
MAX_STARTS = 100_000  # in a period
MAX_SHARE_WEIGHT = 100
MIN_PRIORITY = -256
MAX_PRIORITY = 255
MAX_RETRIES = 1000  # also of crashes and lost leases
MAX_DURATION = 10 * 365 * 86_400_000  # a delay, timeout, deadline or interval
MAX_BACKOFF = 30 * 86_400_000
MAX_WAITS = 20  # of a retry policy
MAX_SPREAD = 1000  # thousandths that are added to the wait before a retry

# Failures
MAX_FINGERPRINT = 32  # characters
MAX_PLACE = 200  # the type of an error, and where it came from
MAX_GROUPS = 1000  # that have failed jobs; those of further ones are listed under `other`
MAX_FINGERPRINTS = 10_000  # likewise; also how many have a traceback
MAX_FAILED_TASKS = 10_000

# Logs
LOG_BLOCK = 8192
LOG_HEAD = 8  # blocks at the beginning of a log that are kept
LOG_TAIL = 24  # blocks at its end
USAGE_BLOCK = -1  # the block number under which resource usage is stored

# Leases and workers
DEFAULT_LEASE = 30_000
MIN_LEASE = 1000
MAX_LEASE = 3_600_000
MAX_IDLE_WAIT = 5000  # the longest that an idle executor blocks before it claims again
MIN_IDLE_WAIT = 1  # the reply of a claim that left work undone: claim again at once
HEARTBEAT_TIMEOUT = 30_000  # a worker is live while its last heartbeat is not older than this
DEFAULT_WORKER_AGE = 86_400_000  # a worker without heartbeats is forgotten after this time
MAX_WORKER_INFO = 16_384

# Events
MAX_EVENT_BYTES = 256 << 20  # of all events that are kept; half of them are deleted when they take more
EVENT_CHECK = 60_000  # how often their size is looked up

# Batches
MAX_BATCHES = 100_000  # of a namespace; then a new one takes the place of the one that has been done for longest
MAX_BATCH_MEMBERS = 1_000_000
DEFAULT_BATCH_KEEP = 7 * 86_400_000  # after it is done

# Schedules
MIN_INTERVAL = 1000
MAX_JITTER = 86_400_000
MIN_TIMES_AHEAD = 20  # if fewer firing times are known, a worker refills the schedule
DEFAULT_BACKLOG = 100
MAX_BACKLOG = 1000


def as_lua() -> str:
    """Return the constants as a Lua table."""
    numbers = ", ".join(f"{name} = {value}" for name, value in globals().items() if name.isupper())
    return f"local constants = {{ {numbers} }}"
