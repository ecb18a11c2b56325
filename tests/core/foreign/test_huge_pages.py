"""Who asks for large pages, and that processes that are started get the setting."""

import sys

import pytest

from relaxjax import hosts
from relaxjax._core.foreign import _huge_pages
from relaxjax._core.foreign._huge_pages import TUNABLES, huge_pages
from relaxjax.islands.started._supervise import supervise

ASKED = {TUNABLES: "glibc.malloc.hugetlb=1"}


@pytest.fixture
def system(monkeypatch, tmp_path):
    """A system with this C library, whose kernel says this."""

    def set_up(libc: str | None, kernel: str) -> None:
        monkeypatch.delenv(TUNABLES, raising=False)
        monkeypatch.setattr("os.confstr", lambda _: libc)
        path = tmp_path / "enabled"
        path.write_text(kernel)
        monkeypatch.setattr(_huge_pages, "_KERNEL", path)

    return set_up


@pytest.mark.parametrize("libc", ["glibc 2.35", "glibc 2.36", "glibc 3.0"])
def test_asked_for_where_the_kernel_waits(system, libc):
    system(libc, "always [madvise] never\n")
    assert huge_pages({"HOME": "/"}) == ASKED


@pytest.mark.parametrize(
    ("libc", "kernel"),
    [
        ("glibc 2.34", "always [madvise] never\n"),
        ("musl 1.2", "always [madvise] never\n"),
        (None, "always [madvise] never\n"),
        ("glibc 2.36", "[always] madvise never\n"),
        ("glibc 2.36", "always madvise [never]\n"),
    ],
)
def test_not_where_it_has_no_effect(system, libc, kernel):
    system(libc, kernel)
    assert huge_pages({}) == {}


def test_nor_where_nothing_is_known(system, monkeypatch, tmp_path):
    system("glibc 2.36", "always [madvise] never\n")
    monkeypatch.setattr(_huge_pages, "_KERNEL", tmp_path / "no such file")
    assert huge_pages({}) == {}

    def unknown(_: str) -> None:
        raise ValueError("unrecognized configuration name")

    system("glibc 2.36", "always [madvise] never\n")
    monkeypatch.setattr("os.confstr", unknown)
    assert huge_pages({}) == {}


def test_a_users_settings_of_glibc_stay(system):
    system("glibc 2.36", "always [madvise] never\n")
    assert huge_pages({TUNABLES: ""}) == {}


def test_launched_processes_get_it(system):
    system("glibc 2.36", "always [madvise] never\n")
    said = []
    command = [sys.executable, "-c", f"import os; print(os.environ[{TUNABLES!r}])"]
    hosts.launch(command, 2, say=lambda *line: said.append(line))
    asked = ASKED[TUNABLES]
    assert sorted(said) == [(0, "stdout", asked), (1, "stdout", asked)]


def test_islands_get_it(system, tmp_path):
    system("glibc 2.36", "always [madvise] never\n")
    path = tmp_path / "seen"
    program = f"import os; open({str(path)!r}, 'w').write(os.environ[{TUNABLES!r}])"
    command = [sys.executable, "-c", program]
    assert supervise(command, ["a"], f"folder:{tmp_path}/run") == 0
    assert path.read_text() == ASKED[TUNABLES]
