"""JSON of others: each reader names what is wrong, soon, and nothing else reads it."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import relaxjax
from relaxjax import compare, emulate, golden, plan
from relaxjax._core.foreign._json import LEVELS, contents_of, parsed
from relaxjax.checkpoint import Checkpoints
from relaxjax.compare.study._study_file import study_there
from relaxjax.islands import DamagedFile
from relaxjax.islands.carriers import _foreign
from tests.compare import studies
from tests.fuzz.readers import vectors

ROOT = Path(relaxjax.__file__).parent
ELSEWHERE = {
    "_core/foreign/_json.py": "the reader",
    "plan/_quality.py": "a file of the package",
    "schedule/simulator/_record.py": "a profile that JAX has just written",
}
BIG = 1 << 40
NETWORK = b'{"workers": 8}'


def test_no_other_file_reads_json():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"\bjson\.loads?\(", path.read_text())
    }
    assert found <= set(ELSEWHERE)


def read_study(folder: Path) -> None:
    compare.Results(folder).table()


def go_on(folder: Path) -> None:
    study_there(folder, {})


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "golden": ("vectors.json", lambda folder: golden.load(folder / "vectors.json")),
    "network": ("n.json", lambda folder: plan.Network.load(folder / "n.json")),
    "study": ("study.json", read_study),
    "study again": ("study.json", go_on),
    "records": ("results.jsonl", read_study),
}
WRONG = {
    "deep list": b"[" * 200_000 + b"\n",
    "deep object": b'{"a":' * 200_000 + b"\n",
    "closed": b"[" * (LEVELS + 1) + b"]" * (LEVELS + 1) + b"\n",
    "no UTF-8": b'{"workers": "\xff\xfe"}\n',
    "NaN": b'{"workers": NaN, "compute_seconds": NaN}\n',
    "digits": b'{"workers": ' + b"9" * 5000 + b"}\n",
    "not an object": b"[1]\n",
    "a word": b'"x"\n',
}


def whole(folder: Path) -> None:
    """Files that all readers take."""
    study = studies.study()
    lines = [json.dumps(r) + "\n" for r in studies.records(study)]
    (folder / "study.json").write_text(json.dumps(study))
    (folder / "results.jsonl").write_text("".join(lines))
    (folder / "vectors.json").write_bytes(vectors()["vectors.json"])
    (folder / "n.json").write_bytes(NETWORK)


@pytest.mark.parametrize("reader", READERS)
class TestReaders:
    """Of files that a user names."""

    @pytest.mark.parametrize("what", WRONG)
    def test_wrong_contents(self, reader, what, tmp_path):
        whole(tmp_path)
        name, read = READERS[reader]
        (tmp_path / name).write_bytes(WRONG[what])
        with pytest.raises(ValueError, match=re.escape(name)):
            read(tmp_path)

    @pytest.mark.parametrize("what", ["pipe", "folder", "big"])
    def test_no_file_of_a_size_that_makes_sense(self, reader, what, tmp_path):
        whole(tmp_path)
        name, read = READERS[reader]
        path = tmp_path / name
        path.unlink()
        if what == "pipe":
            os.mkfifo(path)
        elif what == "folder":
            path.mkdir()
        else:
            with path.open("wb") as file:
                file.truncate(BIG)
        with pytest.raises((ValueError, IsADirectoryError), match=re.escape(name)):
            read(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": 3}, "'name' must be a text"),
        ({"rtol": "x"}, "'rtol' must be a finite number"),
        ({"inputs": [1]}, "'inputs' must be an object"),
    ],
)
def test_golden_vectors_have_types(change, says, tmp_path):
    file = json.loads(vectors()["vectors.json"])
    file["vectors"][1] |= change
    (tmp_path / "v.json").write_text(json.dumps(file))
    with pytest.raises(ValueError, match=f"vector 1 cannot be read.*{says}"):
        golden.load(tmp_path / "v.json")


def test_a_network_has_types(tmp_path):
    for text in ('{"workers": 8, "joined": "no"}', '{"workers": 8, "per_host": null}'):
        (tmp_path / "n.json").write_text(text)
        with pytest.raises(ValueError, match=r"n.json is not a network: '\w+' must be"):
            plan.Network.load(tmp_path / "n.json")


def test_texts_without_an_end_are_read_once():
    """Each quote was where a search to the end began."""
    data = b'"' + b'\\"' * 500_000
    with pytest.raises(ValueError, match="not JSON"):
        parsed(data)
    with pytest.raises(DamagedFile, match="lease/1 is damaged or foreign: it is not"):
        _foreign.parsed("lease/1", data)


def test_brackets_in_texts_are_no_levels():
    deep = "[" * 1000 + '\\"' + "{" * 1000
    assert parsed(json.dumps([deep, {deep: [deep]}]).encode()) == [deep, {deep: [deep]}]
    assert parsed(b"[" * LEVELS + b"]" * LEVELS)


def test_what_checkpoints_keep_may_be_nan(tmp_path):
    state = {"w": jnp.zeros((1, 2)), "best": float("nan")}
    with Checkpoints(tmp_path, emulate(1)) as saved:
        saved.save(1, state, now=True)
        saved.wait()
        _, found = saved.restore(state | {"best": 0.0})
    assert math.isnan(found["best"])


def test_a_link_is_followed(tmp_path):
    (tmp_path / "n.json").write_bytes(NETWORK)
    (tmp_path / "link.json").symlink_to("n.json")
    assert contents_of(tmp_path / "link.json", 100) == NETWORK
    with pytest.raises(ValueError, match="it has 14 bytes, and 13 at most"):
        contents_of(tmp_path / "link.json", 13)
