"""Texts of programs with damage: refused by name within seconds, or still counted.

`pytest -m slow tests/fuzz/test_programs.py` tries 2 000 for each reader.
"""

import random
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from relaxjax import schedule
from relaxjax.programs import bytes_sent
from relaxjax.ps._compiled_order import order_in
from relaxjax.schedule import Graph, Link
from relaxjax.schedule.replayed import _replay
from tests.fuzz.bounds import bounded
from tests.programs.test_bytes_sent import ALL, module

GROUPS = "channel_id=1, replica_groups=[1,4]<=[4]"
TRIPS = 'backend_config={"known_trip_count":{"n":"3"}}'
LOOP = f"""
%cond (c: f32[10]) -> pred[] {{
  %c = f32[10] parameter(0)
  ROOT %less = pred[] constant(false)
}}

%body (b: f32[10]) -> f32[10] {{
  %b = f32[10] parameter(0)
  ROOT %t = f32[10] all-reduce(%b), {ALL}, to_apply=%add
}}
"""
SCOPE = 'metadata={op_name="jit(step)/pull w;/all-gather"}'
TEXT = module(
    f"%s = ((f32[10]), f32[10]) all-reduce-start(%x), {ALL}, to_apply=%add",
    "%m = f32[10]{0} multiply(%x, %x)",
    "%d = f32[10]{0} all-reduce-done(%s)",
    f"%g = (u8[64]{{0}}, /*i=1*/f32[40]) all-gather(%z, %x), {GROUPS}, {SCOPE}",
    f"%w = f32[10] while(%d), condition=%cond, body=%body, {TRIPS}",
    "%p = f32[10] collective-permute(%w), source_target_pairs={{0,1},{1,0}}",
    "ROOT %sum = f32[10]{0:T(8)} add(%p, %m)",
    before=LOOP,
)
PART = re.compile(r"[\w.\-]+|[^\w\s]|\n *| ")
ODD = (
    *("(", ")", "{", "}", "[", "]", "%", "=", ",", "\n", "\x00", "\u00e9", "/*", "*/"),
    *("%body", "%main", "calls=%main", "to_apply=%body", "while", "call", "parameter"),
    *("999999999999999999999", "-1", "0", "1000000000", "9" * 5000, "1.5", "nan"),
    *("(" * 50_000, "f32[2]{" * 20_000, ") a(" * 20_000, "a" * 100_000, "/*" * 50_000),
)
PARAMS = {
    "x": jax.ShapeDtypeStruct((10,), jnp.float32),
    "y": jax.ShapeDtypeStruct((3, 8), jnp.bfloat16),
    "z": jax.ShapeDtypeStruct((16,), jnp.uint8),
}
READERS: dict[str, Callable[[str], Any]] = {
    "bytes_sent": bytes_sent,
    "replay": lambda text: schedule.replay(text, link=Link(1e-6, 1e9)),
    "order_in": order_in,
    "from_hlo": lambda text: Graph.from_hlo(text, PARAMS),
}


def mistaken(rng: random.Random) -> str:
    """The text with one to three of its parts replaced, dropped, doubled or swapped."""
    parts = PART.findall(TEXT)
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
        how = rng.random()
        if how < 0.5:
            parts[i] = rng.choice(ODD)
        elif how < 0.7:
            del parts[i]
        elif how < 0.8:
            parts[i:i] = parts[min(i, j) : max(i, j)]
        else:
            parts[i], parts[j] = parts[j], parts[i]
    return "".join(parts)


@pytest.mark.parametrize("name", READERS)
def test_the_text_without_mistakes_is_read(name):
    assert "".join(PART.findall(TEXT)) == TEXT
    assert READERS[name](TEXT) is not None


@pytest.mark.parametrize(
    "count", [60, pytest.param(2_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", READERS)
def test_a_text_is_read_or_refused_by_name(name, count, monkeypatch):
    monkeypatch.setattr(_replay, "_MOST", 100_000)  # turns of a loop; else a minute
    rng, read = random.Random(0), 0
    for _ in range(count):
        text = mistaken(rng)
        refused = ""
        try:
            with bounded():
                READERS[name](text)
        except ValueError as error:
            refused = str(error)
        except BaseException as error:
            error.add_note(text[:3000])
            raise
        assert not refused or len(refused) > 10, text[:3000]
        read += not refused
    assert 0 < read < count
