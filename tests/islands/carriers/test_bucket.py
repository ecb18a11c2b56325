"""A bucket: a service of the test's own in memory, and S3's interface where moto is."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import fsspec
import fsspec.config
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from relaxjax.cli._app import app
from relaxjax.islands import found, open_store, replay
from relaxjax.islands.carriers import _bucket as buckets
from relaxjax.islands.carriers import _store as stores
from relaxjax.islands.carriers._bucket import Bucket
from relaxjax.islands.carriers._open import CARRIER
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._names import NAME
from tests.islands.carriers.test_ray import QUIET
from tests.islands.world import SETTINGS, World


class Service(MemoryFileSystem):
    """One put at a time, and faults where a test wants them."""

    protocol = "service"
    lock = threading.Lock()
    after: Callable[[str], None] = staticmethod(lambda mode: None)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with self.lock:
            super().pipe_file(path, value, mode=mode, **kwargs)
        Service.after(mode)


class Careless(Service):
    """A service that knows nothing of conditional puts."""

    protocol = "careless"

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        super().pipe_file(path, value, **kwargs)


fsspec.register_implementation("service", Service, clobber=True)
fsspec.register_implementation("careless", Careless, clobber=True)


@pytest.fixture
def bucket(monkeypatch) -> Bucket:
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return Bucket("service://runs/x/")


def lost(kind: type[Exception], *arguments) -> Callable[[str], None]:
    """An answer that is lost where a put was made."""

    def after(mode: str) -> None:
        if mode == "create":
            raise kind(*arguments)

    return after


def test_it_is_a_store(bucket):
    stores.probe(bucket, "me")
    assert bucket.place == bucket.carrier == "bucket:service://runs/x"
    assert bucket.create("a/b", b"one")
    assert not bucket.create("a/b", b"one")
    assert (bucket.names("a"), bucket.read("a/b")) == (["b"], b"one")
    bucket.replace("a/b", b"three\n")
    bucket.replace("a/c/d", b"")
    assert (bucket.names("a"), bucket.read("a/b")) == (["b", "c"], b"three\n")
    assert (bucket.names("b"), bucket.read("a/c/d")) == ([], b"")
    for _ in range(2):
        bucket.delete("a/b")
    with pytest.raises(FileNotFoundError):
        bucket.read("a/b")


def test_marks_of_folders_are_no_names(bucket, monkeypatch):
    bucket.create("a/b", b"")
    listed = ["runs/x/a", "/runs/x/a/b", "runs/x/a/"]
    monkeypatch.setattr(bucket._files, "ls", lambda path, detail: listed)
    assert bucket.names("a") == ["b"]


def test_a_foreign_object_is_read_as_it_is(bucket):
    bucket._files.pipe_file("runs/x/log/1", b'{"version": 1}\n')
    assert bucket.read("log/1") == b'{"version": 1}\n'


@pytest.mark.parametrize(
    "error", [lost(TimeoutError), lost(FileExistsError, "412"), lost(RuntimeError)]
)
def test_a_put_whose_answer_is_lost_counts(bucket, error, monkeypatch):
    monkeypatch.setattr(Service, "after", staticmethod(error))
    assert bucket.create("a", b"one")
    assert not bucket.create("a", b"one")
    assert bucket.read("a") == b"one"


def test_where_nothing_was_put_the_error_says_why(bucket, monkeypatch):
    def refuse(*arguments, **options):
        raise KeyError("no credentials")

    monkeypatch.setattr(bucket._files, "pipe_file", refuse)
    why = r"nothing was put .*KeyError: 'no credentials'.*bucket:service://runs/x/a"
    with pytest.raises(OSError, match=why) as error:
        bucket.create("a", b"")
    assert error.value.errno == errno.EIO


def test_a_service_without_conditional_puts_is_refused(bucket):
    with pytest.raises(ValueError, match=r"exactly one must win.*conditional puts"):
        stores.probe(Bucket("careless://runs/x"), "me")


@pytest.mark.parametrize("url", ["runs/x", "file://runs/x", "s3://", "http://a/b"])
def test_what_is_no_bucket_is_refused(url):
    with pytest.raises(ValueError, match=r"must be a URL of fsspec, as in bucket:s3"):
        open_store(f"bucket:{url}")


def test_an_unknown_service_is_named():
    with pytest.raises(ValueError, match=r"bucket:ess3://a/b'.*ess3"):
        open_store("bucket:ess3://a/b")


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(buckets, "import_module", missing)
    with pytest.raises(ImportError, match=r"relaxjax\[bucket\].*'fsspec'"):
        open_store("bucket:s3://a/b")


class Seen(Bucket):
    """A bucket whose objects the rules can look at."""

    @property
    def files(self) -> dict[str, bytes]:
        names = [name.partition("runs/x/")[2] for name in self._files.find("runs/x")]
        return {name: self.read(name) for name in names}


def merged(bucket: Bucket, rounds: int) -> World:
    """Two islands that contribute and merge, and what must hold of their log."""
    world = World(SETTINGS._replace(keep=True), bucket)
    processes = [world.process(name) for name in "ab"]
    for salt in range(rounds):
        for process in processes:
            process.adopt()
            process.offer(8, 2, salt)
        for process in processes * 2:
            process.turn()
        world.now += 1
    world.check()
    return world


def test_islands_merge_in_a_bucket_and_merge_again(bucket):
    world = merged(Seen("service://runs/x"), 6)
    assert world.checked == 6
    store = found("bucket:service://runs/x")
    assert store is not None
    assert [merge.is_equal for merge in replay(store)] == [True] * 6


def test_the_command_looks_into_a_bucket(bucket):
    run = CliRunner().invoke(app, ["islands", "status", bucket.carrier])
    assert run.exit_code == 2
    assert "is not the folder of a run" in run.output
    merged(Seen("service://runs/x"), 2)
    run = CliRunner().invoke(app, ["islands", "status", bucket.carrier])
    assert run.exit_code == 0, run.output
    assert run.output.startswith("2 merges")
    run = CliRunner().invoke(app, ["islands", "replay", bucket.carrier])
    assert run.output.startswith("2 merges made again, 2 equal to the bit")


@pytest.fixture
def s3(monkeypatch) -> Iterator[Bucket]:
    """A bucket of a server that speaks S3, on this machine."""
    moto, s3fs = (pytest.importorskip(name) for name in ("moto.server", "s3fs"))
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}").mkdir("runs")
    monkeypatch.setitem(
        fsspec.config.conf, "s3", {"endpoint_url": f"http://127.0.0.1:{port}"}
    )
    try:
        yield Bucket("s3://runs/x")
    finally:
        server.stop()


def island(carrier: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", QUIET],
        env=os.environ | {CARRIER: carrier, NAME: name},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_islands_meet_in_s3(s3):
    """One of two is killed and comes back; its contributions merge again to the bit."""
    stores.probe(s3, "me")
    tick = threading.Event()
    islands = [island(s3.carrier, name) for name in "ab"]

    def until(version: int) -> None:
        while log.newest(s3) < version:
            tick.wait(0.05)
            assert islands[0].poll() is None

    try:
        until(4)
        islands[1].kill()
        islands.append(island(s3.carrier, "b"))
        while members.newest(s3).get("b") != 2:
            tick.wait(0.05)
        until(log.newest(s3) + 6)
    finally:
        for each in islands:
            each.kill()
            each.wait()
    done = list(replay(s3))
    assert len(done) >= 10
    assert all(merge.is_equal and not merge.fault for merge in done)
    assert "b.000002" in {name for merge in done for name in merge.contributors}
