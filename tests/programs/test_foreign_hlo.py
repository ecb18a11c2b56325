"""Texts that no compiler made: refused by name, at once, whatever is wrong with them.

Each text would take minutes or all memory if nothing bounded it.
"""

import pytest

from relaxjax import schedule
from relaxjax.programs import arrays, bytes_sent, parse
from relaxjax.ps._compiled_order import order_in
from relaxjax.schedule import Link
from tests.programs.test_bytes_sent import ALL, module

LONG = 100_000


def called(*bodies: tuple[str, str]) -> str:
    """Computations that call each other; `main` calls the first one."""
    text = "".join(
        f"%{name} (x: f32[2]) -> f32[2] {{\n  %x = f32[2] parameter(0)\n"
        f"  {inside}\n}}\n"
        for name, inside in bodies
    )
    first = bodies[0][0]
    return module(f"ROOT %r = f32[2] call(%x), to_apply=%{first}", before=text)


def calls(name: str) -> str:
    return f"ROOT %c = f32[2] call(%x), to_apply=%{name}"


DEEP = called(*((f"c{i}", calls(f"c{i + 1}")) for i in range(LONG // 100)))
TWICE = called(
    *((f"c{i}", f"{calls(f'c{i + 1}')[5:]}\n  {calls(f'c{i + 1}')}") for i in range(50))
)
TRIPS = (
    '%w = f32[10] while(%x), condition=%c, body=%b, backend_config={"known_trip_count"'
    ':{"n":"99999999999999999"}}'
)
LOOP = "".join(
    f"%{name} (y: f32[10]) -> f32[10] {{\n  %y = f32[10] parameter(0)\n"
    f"  ROOT %s = f32[10] all-reduce(%y), {ALL}\n}}\n"
    for name in "cb"
)
TEXTS = {
    "parentheses": (module("%r = (" + "(" * LONG + " add(%x)"), r"line 13: %r = \(\("),
    "parts": (module("%r = (" + ") a(" * LONG), r"line 13: %r = \(\) a\(\) a"),
    "no opcode": (module("%r = f32[10]"), "line 13: %r = f32.10. is not NAME ="),
    "comments": (module("%r = f32[10] " + "/*" * LONG), "line 13"),
    "itself": (called(("f", calls("f"))), "computation %f calls itself"),
    "by another": (called(("f", calls("g")), ("g", calls("f"))), "%f calls itself"),
    "deep": (DEEP, "%c899 is 100 calls deep"),
    "twice": (TWICE, "runs more than 10000000 instructions"),
    "devices": (module(header="num_partitions=1000000000"), "num_partitions=10000000"),
    "digits": (module(header="num_partitions=" + "9" * 5000), "num_partitions=9999"),
    "product": (
        module(header="replica_count=65536, num_partitions=65536"),
        "replica_count=65536 times num_partitions=65536 must be from 1 to 131072",
    ),
    "iota": (
        module("%r = f32[10] all-reduce(%x), replica_groups=[9]<=[99999,9999999]"),
        "%r: replica_groups=.*999989.*devices; it must be from 1",
    ),
    "form": (module("%r = f32[10] all-reduce(%x), replica_groups=all"), "=all is not"),
    "trips": (module(TRIPS, before=LOOP), "loop %w runs 99999999999999999 times"),
    "no body": (module("%w = f32[10] while(%x)"), "%w: a while has condition="),
    "operand": (module(f"%r = f32[10] all-reduce(%gone), {ALL}"), "bytes_sent.*gone"),
    "target": (
        module("%r = f32[10] collective-permute(%x), source_target_pairs={{9,0}}"),
        "bytes_sent: the text is no HLO module",
    ),
    "large": (
        module("%r = u8[9] all-gather(%v), channel_id=1").replace(
            "  %z = u8[16]", f"  %v = f32[{'9' * 30}] parameter(3)\n  %z = u8[16]"
        ),
        "no HLO",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_refused_by_name(name):
    text, says = TEXTS[name]
    with pytest.raises(ValueError, match=says):
        bytes_sent(text)


@pytest.mark.parametrize("name", ["itself", "deep", "twice", "devices", "parts"])
def test_all_readers_refuse_it(name):
    text, says = TEXTS[name]
    for read in (parse, schedule.replay, order_in):
        with pytest.raises(ValueError, match=says):
            read(text)


def test_a_replay_of_too_many_turns_says_so(monkeypatch):
    monkeypatch.setattr("relaxjax.schedule.replayed._replay._MOST", 10_000)
    with pytest.raises(ValueError, match="more than 10000 instructions: compile one"):
        schedule.replay(TEXTS["trips"][0], link=Link(0.0, 1.0))


def test_a_ring_of_copies_ends():
    ring = "%p = f32[10] copy(%q)\n  %q = f32[10] copy(%p)"
    ring += "\n  ROOT %t = (f32[10]) tuple(%p)"
    parts = "".join(
        f"%{name} (y: f32[10]) -> f32[10] {{\n  {text}\n}}\n"
        for name, text in (("b", ring), ("c", "ROOT %g = pred[] copy(%g), index=0"))
    )
    loop = "%w = f32[10] while(%x), condition=%c, body=%b"
    assert bytes_sent(module(loop, before=parts)).tolist() == [0] * 4


@pytest.mark.parametrize(
    "shape", ["a" * LONG, "f32[2]{" * LONG, "f32[2]{" + "E(1)" * LONG]
)
def test_shapes_are_read_once(shape):
    assert len(arrays(shape)) <= LONG


@pytest.mark.parametrize("shape", ["[" * LONG, "(f32[2], f32[?,3])", "f32[-1]"])
def test_a_shape_of_unknown_size_is_refused_at_once(shape):
    with pytest.raises(ValueError, match="sizes that are not numbers"):
        arrays(shape)
