"""Folders that a user names: home, file://, and addresses that are refused."""

from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import pytest

import relaxjax
from relaxjax import golden, islands, plan, topology
from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax.checkpoint import Checkpoints, latest, restore_params
from relaxjax.cli import app
from relaxjax.cli.common._function import write_new
from relaxjax.compare import Results, Study
from relaxjax.schedule import Link, chakra

HLO = """HloModule sum, is_scheduled=true, num_partitions=2
ENTRY %main (x: f32[50]) -> f32[50] {
  %x = f32[50] parameter(0)
  ROOT %s = f32[50] all-reduce(%x), channel_id=1, replica_groups={{0,1}}
}"""
MESH = relaxjax.emulate(2)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("runs/a", "runs/a"),
        ("~/runs", "HOME/runs"),
        ("file:///tmp/a%20b", "/tmp/a b"),
        (Path("file:///tmp/x"), "/tmp/x"),  # with one slash, as pathlib has it
        ("file://localhost/tmp/x", "/tmp/x"),
        ("C:/runs", "C:/runs"),
        ("a:b", "a:b"),
    ],
)
def test_what_is_local(given, path, monkeypatch):
    monkeypatch.setenv("HOME", "HOME")
    assert local_path("f", "x", given) == Path(path)


WAYS = {
    "Checkpoints": lambda where: Checkpoints(where, MESH),
    "a reader": lambda where: Checkpoints(where, MESH, read_only=True),
    "latest": latest,
    "restore_params": restore_params,
    "chakra": lambda where: chakra(HLO, where),
    "islands": lambda where: islands.join(
        {"x": jnp.zeros(2)}, f"folder:{where}", "a", sync_every=2, fragments=1
    ),
    "a study's results": Results,
    "a study": lambda where: Study.run(cast(Any, None), where),
    "golden vectors": golden.load,
    "a network": lambda where: plan.Network.load(where),
    "a network's file": plan.Network(workers=2, link=Link(1e-3, 1e9)).save,
    "a graph's picture": topology.ring(4).draw,
    "a skeleton": lambda where: write_new(Path(where), ""),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("where", ["gs://bucket/run", "s3://b/r", "memory://run"])
def test_no_folder_is_made_for_an_address(way, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r":/.* is an address, and only local folders"):
        way(where)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_comes_back_from_home_and_from_a_file_address(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    state = {"params": relaxjax.to_workers({"w": jnp.arange(3.0)}, MESH)}
    with Checkpoints("~/run", MESH) as checkpoints:
        assert checkpoints.save(1, state)
    found = restore_params(f"file://{tmp_path}/run")
    assert found["w"].tolist() == [0, 1, 2]


def test_a_command_says_so_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["train", "--relaxation", "all_reduce", "--out", "gs://bucket/run"]
    with pytest.raises(SystemExit):
        app(asked)
    assert "'gs://bucket/run' is an address" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_home_of_nobody_is_refused():
    with pytest.raises(ValueError, match=r"'~no_such_user/x' .* write \./~no_such"):
        local_path("f", "x", "~no_such_user/x")


def test_a_file_is_written_whole_or_stays(tmp_path, monkeypatch):
    """A full disk, or a kill, in the middle of a rewrite of decisions or results."""
    kept, link = tmp_path / "kept.json", tmp_path / "link.json"
    kept.write_text("before")
    link.symlink_to(kept)

    def half(path: Path, text: str) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", half)
        with pytest.raises(OSError, match="no space"):
            write_whole(link, "after")
    assert kept.read_text() == "before"
    write_whole(link, "after")
    assert kept.read_text() == "after"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [kept, link]


def test_what_is_no_file_is_written_to():
    write_whole(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()


IN_PLACE = {
    "_core/foreign/_folders.py",  # itself
    "checkpoint/_files.py",  # a part, which is renamed
    "cli/common/_function.py",  # a file that is not there yet
    "hosts/_links.py",  # of the machine, beside what is mounted over it
    "tasks/_load.py",  # an example
}


def test_files_that_users_name_are_written_whole():
    root = Path(relaxjax.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if ".write_text(" in path.read_text()
    }
    assert found == IN_PLACE
