"""Damaged files: each is refused by name within seconds, or reads as what it still is.

`pytest -m slow tests/fuzz/test_readers.py` tries 2 000 of each of `readers.READERS`.
Nothing is made beside the folder that is read.
"""

import os
import random
import warnings
from itertools import islice
from pathlib import Path

import pytest

from relaxjax.checkpoint import _lock
from relaxjax.plan import _rank
from tests.fuzz.bounds import bounded
from tests.fuzz.readers import READERS, Reader

FEW, MANY = 60, 2_000


def refusal(reader: Reader, folder: Path) -> str:
    """Why the files are not read; "" if they are."""
    try:
        with bounded(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a torn last line
            reader.read(folder)
    except ValueError as error:
        return str(error) or "?"
    return ""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder of files in another one, which is the working directory."""
    every = _rank.candidates
    monkeypatch.setattr(_rank, "candidates", lambda net: [*islice(every(net), 2)])
    monkeypatch.setattr(_lock, "_POLL", 0)  # nobody writes an owner's name later
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "read"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "count",
    [
        FEW,
        pytest.param(MANY // 10, marks=pytest.mark.slow),
        pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.every]),
    ],
    ids=["few", "more", "many"],
)
@pytest.mark.parametrize("name", READERS)
def test_damage_is_refused_by_name(name, count, place):
    rng, reader = random.Random(0), READERS[name]
    whole = {place / file: data for file, data in reader.files().items()}
    for path, data in whole.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert refusal(reader, place) == ""
    for _ in range(count):
        path = rng.choice(sorted(whole))
        what = reader.damage(whole[path], rng)
        path.write_bytes(what)
        try:
            said = refusal(reader, place)
        except BaseException as error:
            error.add_note(f"{path}: {what[:2000]!r}")
            raise
        words = (path.name, *reader.named)
        assert not said or any(word in said for word in words), (said, what[-300:])
        assert os.listdir(place.parent) == [place.name]
        path.write_bytes(whole[path])
