"""PostgreSQL clusters of the judge's own: streaming replication, promotion, backups; psql is the only client."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DATABASE = "app"
SUPERUSER = "postgres"
# What the server and psql get of our environment: nobody's PGHOST shall lead us elsewhere.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TZ") if name in os.environ}
SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 60
shared_buffers = '32MB'
wal_level = replica
max_wal_senders = 6
wal_keep_size = '256MB'
wal_retrieve_retry_interval = '200ms'
hot_standby = on
"""


# Looked up here, because a new child of a process with threads should do as little as it can.
_prctl = ctypes.CDLL(None).prctl


def end_with_us() -> None:
    """Runs in a new child: it shall not outlive the judge (PR_SET_PDEATHSIG is 1)."""
    _prctl(1, signal.SIGKILL)


def server_user() -> dict:
    """PostgreSQL refuses root: as root its programs run as `postgres`, or as `nobody` where there is none."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
            return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    raise SystemExit("borders: root needs a user postgres or nobody to run PostgreSQL as")


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds: float, what, pause: float = 0.05):
    """The first true answer of `condition`; when the time is over it fails by `what`, a text or a function."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:g} s still not: {what() if callable(what) else what}")
        time.sleep(pause)


class SqlError(Exception):
    """What psql said when a statement failed."""


class Cluster:
    """One data directory and, while it runs, its server."""

    programs: Path  # where initdb, postgres, psql are; set once by the command line

    def __init__(self, folder: Path, port: int | None = None):
        self.folder = folder
        self.port = port or free_port()
        self.server: subprocess.Popen | None = None

    # --- making ---------------------------------------------------------------------------------

    def program(self, name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        """One of PostgreSQL's programs, as the server's user."""
        line = [self.programs / name, *arguments]
        done = subprocess.run(line, env=ENVIRONMENT, cwd="/", text=True, capture_output=True, **server_user())
        if check and done.returncode != 0:
            raise RuntimeError(f"{name} failed: {done.stderr.strip()[-600:]}")
        return done

    def initialise(self) -> "Cluster":
        """A new cluster with a system identifier of its own."""
        self.program("initdb", "-D", str(self.folder), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-sync")
        with open(self.folder / "postgresql.conf", "a") as file:
            file.write(SETTINGS)
        return self

    def copy_to(self, folder: Path, port: int | None = None) -> "Cluster":
        """A cold copy of the files; the server must be stopped."""
        assert self.server is None, "a running cluster is not copied file by file"
        subprocess.run(["cp", "-a", self.folder, folder], check=True)
        return Cluster(folder, port)

    def base_backup(self, folder: Path, port: int | None = None) -> "Cluster":
        """A backup of the running cluster, WAL included; not started."""
        self.program(
            "pg_basebackup", "-h", "127.0.0.1", "-p", str(self.port), "-U", SUPERUSER, "-D", str(folder),
            "-X", "stream", "-c", "fast", "--no-sync",
        )
        return Cluster(folder, port)

    def standby(self, folder: Path, port: int | None = None) -> "Cluster":
        """A streaming standby of this cluster, started, and caught up when this returns."""
        copy = self.base_backup(folder, port)
        copy.follow(self)
        copy.configure(synchronous_standby_names="")
        copy.start()
        self.wait_for_standby()
        return copy

    def follow(self, primary: "Cluster") -> None:
        """At its next start this cluster streams from `primary`."""
        self.configure(primary_conninfo=f"host=127.0.0.1 port={primary.port} user={SUPERUSER} application_name=standby")
        self.touch("standby.signal")

    def touch(self, name: str) -> None:
        """An empty file in the data directory that the server's user owns."""
        path = self.folder / name
        path.touch()
        shutil.chown(path, self.folder.stat().st_uid, self.folder.stat().st_gid)

    def configure(self, **settings: str) -> None:
        """Append settings; the last one wins. A running server is told to read them."""
        with open(self.folder / "postgresql.auto.conf", "a") as file:
            for name, value in settings.items():
                file.write(f"{name} = '{value}'\n")
        if self.server is not None:
            os.kill(self.server.pid, signal.SIGHUP)

    # --- running --------------------------------------------------------------------------------

    def start(self, environment: dict[str, str] | None = None) -> "Cluster":
        """Start the server as our own child and wait until it answers."""
        log = open(self.folder.parent / f"{self.folder.name}.log", "a")
        self.server = subprocess.Popen(
            [self.programs / "postgres", "-D", str(self.folder), "-p", str(self.port)],
            env={**ENVIRONMENT, **(environment or {})}, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=end_with_us, start_new_session=True, **server_user(),
        )
        log.close()
        wait_until(self.answers, 60, f"the server in {self.folder} answers")
        return self

    def answers(self) -> bool:
        """Whether a session can be had."""
        if self.server is not None and self.server.poll() is not None:
            raise RuntimeError(f"the server ended at once: see {self.folder}.log")
        try:
            return self.sql("SELECT 1", database="postgres") == "1"
        except SqlError:
            return False

    def stop(self) -> None:
        """An orderly end."""
        if self.server is not None:
            os.kill(self.server.pid, signal.SIGINT)
            self.server.wait(60)
            self.server = None

    def kill(self) -> None:
        """The host is gone: SIGKILL to every process of the server."""
        if self.server is None:
            return
        children = self.children()
        self.server.kill()
        self.server.wait()
        for process_id in children:
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.server = None

    def children(self) -> list[int]:
        """The processes that the postmaster has started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == self.server.pid:
                    found.append(int(entry.name))
        return found

    def promote(self) -> None:
        """End recovery on a new timeline; returns when a write has been committed."""
        self.program("pg_ctl", "promote", "-w", "-t", "60", "-D", str(self.folder))
        wait_until(self.writable, 30, "the promoted server takes writes", 0.01)

    def writable(self) -> bool:
        """Whether a transaction that writes can be committed."""
        try:
            self.sql("CREATE TABLE IF NOT EXISTS judge (n int); INSERT INTO judge VALUES (1)", database="postgres")
            return True
        except SqlError:
            return False

    # --- replication ----------------------------------------------------------------------------

    def wait_for_standby(self) -> None:
        """Everything committed so far has been replayed by a standby."""
        wait_until(
            lambda: self.sql(
                "SELECT count(*) > 0 FROM pg_stat_replication"
                " WHERE state = 'streaming' AND replay_lsn >= pg_current_wal_lsn()"
            ) == "t",
            60, "the standby has caught up",
        )

    def make_synchronous(self) -> None:
        """Commits wait for a standby from here on."""
        self.configure(synchronous_standby_names="*")
        wait_until(
            lambda: self.sql("SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'") == "t",
            30, "the standby is synchronous",
        )

    def lose_primary(self) -> None:
        """This standby no longer reaches its primary: from here on it lags."""
        self.configure(primary_conninfo=f"host=127.0.0.1 port={free_port()} user={SUPERUSER} connect_timeout=1")
        wait_until(
            lambda: self.sql("SELECT count(*) = 0 FROM pg_stat_wal_receiver WHERE status = 'streaming'") == "t",
            30, "the standby is cut off",
        )

    def identity(self) -> str:
        """System identifier and timeline; the control file keeps the old timeline until the checkpoint after it."""
        return self.sql(
            "SELECT system_identifier || ' timeline ' || left(pg_walfile_name(pg_current_wal_lsn()), 8)"
            " FROM pg_control_system()"
        )

    # --- SQL ------------------------------------------------------------------------------------

    def url(self, login: str = SUPERUSER, database: str = DATABASE) -> str:
        """How a client reaches this server."""
        return f"postgres://{login}@127.0.0.1:{self.port}/{database}"

    def sql(self, statements: str, login: str = SUPERUSER, database: str = DATABASE) -> str:
        """What psql prints: unaligned, without headings."""
        return psql(self.url(login, database), statements)

    def rows(self, query: str, login: str = SUPERUSER) -> list[list[str]]:
        """The rows of one query, every value as text."""
        text = self.sql(query, login)
        return [line.split("|") for line in text.splitlines()]

    def dump_to(self, file: Path) -> None:
        """The roles and the database, as pg_dumpall and pg_dump write them."""
        with open(file, "w") as target:
            for line in (["pg_dumpall", "--roles-only", "-d", self.url()], ["pg_dump", "--create", "-d", self.url()]):
                subprocess.run([self.programs / line[0], *line[1:]], env=ENVIRONMENT, stdout=target, check=True)
                target.flush()

    def load_from(self, file: Path) -> None:
        """A dump into this cluster, which has none of it yet but the superuser."""
        # Bytes, because functions hold carriage returns that text mode would change.
        dump = file.read_bytes().replace(f"CREATE ROLE {SUPERUSER};".encode(), b"")
        psql(self.url(database="postgres"), dump)


def psql(url: str, statements: str | bytes) -> str:
    """Run statements over one session; several hosts in the URL are psql's own affair."""
    done = subprocess.run(
        [Cluster.programs / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url],
        input=statements.encode() if isinstance(statements, str) else statements,
        env={**ENVIRONMENT, "PGCONNECT_TIMEOUT": "3"}, capture_output=True,
    )
    if done.returncode != 0:
        raise SqlError(done.stderr.decode().strip())
    return done.stdout.decode().strip()
