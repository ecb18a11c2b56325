"""Sixteen emulated CPU devices, for the tests and the doctests alike."""

import ctypes
import gc
import os
import signal

# XLA's CPU thread pool must outnumber the emulated devices, or their rendezvous
# starves; it is sized once, before the backend starts.
os.environ.setdefault("NPROC", "40")

import platform
from pathlib import Path
from zlib import crc32

import jax
import pytest

# One module of LLVM for a program instead of dozens, and no fused multiply-add, which
# would be used here and there, though workers must agree to the bit. XLA's plain
# emitters, while it has them, compile in a third of the time; later ones take as long
# for a loop of many small arrays as for all else, where it becomes a single function. A
# version of XLA that does not know a flag stops at it; flags already set come last, and
# hold.
if platform.machine() in ("x86_64", "AMD64"):
    fast = ["--xla_cpu_max_isa=AVX", "--xla_cpu_parallel_codegen_split_count=1"]
    if jax.__version_info__ < (0, 11):
        fast += ["--xla_cpu_use_fusion_emitters=false"]
    else:
        fast += ["--xla_disable_hlo_passes=small-while-loop-hoisting"]
    os.environ["XLA_FLAGS"] = " ".join([*fast, os.environ.get("XLA_FLAGS", "")])

# Most of a test's time is LLVM's; HLO, which some tests read, stays as it is. A sixth
# is what lowering takes to write down where in Python each instruction was traced.
# Programs that tests start inherit both.
for name, value in (
    ("DISABLE_MOST_OPTIMIZATIONS", 1),
    ("TRACEBACK_IN_LOCATIONS_LIMIT", 0),
):
    os.environ[f"JAX_{name}"] = str(value)
    jax.config.update(f"jax_{name.lower()}", value)

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 16)
# Many tests compile the same program; two that write it at once cost a compilation.
CACHE = Path(__file__).parent / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


# What a process may hold before it forgets its programs, between two files and at all.
MOST_BYTES, AT_ALL = 1.0 * 2**30, 1.3 * 2**30


def pytest_collection_finish() -> None:
    """What is there before the first test stays, and is not searched for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Compiled programs stay in memory until JAX is told to forget them."""
    same_file = nextitem is not None and nextitem.path == item.path
    if _resident() < (AT_ALL if same_file else MOST_BYTES):
        return
    jax.clear_caches()
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def ctrl_c_is_pytests():
    """A program's own Ctrl-C ends the process: a test that takes it is a mistake."""
    yield
    taken = signal.set_wakeup_fd(-1)
    assert taken == -1, "relaxjax.hosts.install() in the tests' own process"


def _resident() -> int:
    """Bytes of memory of this process; 0 where the system does not say."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SLOW = 4
"""How many times as many cases of a test marked `few` the slow suite takes."""


def spread_out(items: list[pytest.Item], count: int) -> set[str]:
    """Ids of the cases of one test that are run: they cover what parameters may be.

    First whatever shows most values that none before it has shown; then, if there are
    cases left to choose, evenly spaced ones.
    """
    values = {item.nodeid: _values(item) for item in items}
    chosen: list[str] = []
    seen: set[tuple[str, int]] = set()
    while len(chosen) < count:
        best = max(values, key=lambda name: len(values[name] - seen))
        if not values[best] - seen:
            break
        chosen.append(best)
        seen |= values[best]
    names = list(values)
    stride = max(1, len(names) // max(1, count))
    rest = [name for name in names[::stride] if name not in chosen]
    return set([*chosen, *rest][:count])


def _values(item: pytest.Item) -> set[tuple[str, int]]:
    """A parameter's values are the same objects in all cases of a test."""
    callspec = getattr(item, "callspec", None)
    return {(name, id(v)) for name, v in callspec.params.items()} if callspec else set()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The README's command is for whoever has never seen the project, and waits."""
    text = "a quarter of the cases marked `few`, and none of what is marked `long`"
    parser.addoption("--brief", action="store_true", help=text)
    quarter = "a quarter of the cases marked `few`; CI has minutes"
    parser.addoption("--quarter", action="store_true", help=quarter)
    every = f"all cases, where `-m slow` takes {SLOW} times the `few` at most"
    parser.addoption("--every", action="store_true", help=every)
    parser.addoption("--shard", default="1/1", help="a part of the cases, as in 3/8")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Of a test marked `few(n)`, n cases are run; the others are slow."""
    brief = config.getoption("--brief")
    of = 4 if brief or config.getoption("--quarter") else 1
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {item.nodeid for item in items if item.get_closest_marker("every")}
    for group in cases.values():
        marker = group[0].get_closest_marker("few")
        assert marker is not None
        (number,) = marker.args
        run = spread_out(group, -(-number // of))
        slow = spread_out(group, SLOW * number)
        for item in group:
            if item.nodeid not in run:
                item.add_marker(pytest.mark.slow)
            if item.nodeid not in run | slow:
                left_out.add(item.nodeid)
    for item in items:
        if brief and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    part, parts = map(int, str(config.getoption("--shard")).split("/"))
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"--shard {part}/{parts} is no part, as 3/8 is")
    if config.getoption("--every"):
        left_out.clear()
    here = part - 1
    left_out |= {x.nodeid for x in items if crc32(x.nodeid.encode()) % parts != here}
    gone = [item for item in items if item.nodeid in left_out]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item.nodeid not in left_out]
