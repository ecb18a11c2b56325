"""Bytes read from small HLO modules, written by hand, each form that XLA prints."""

import numpy as np
import pytest

from relaxjax.programs import bytes_sent, parse, shape_nbytes

ALL = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"


def module(*body: str, before: str = "", header: str = "num_partitions=4") -> str:
    lines = "\n".join(f"  {line}" for line in body)
    return f"""HloModule test, is_scheduled=true, {header}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}
{before}
ENTRY %main (x: f32[10], y: bf16[3,8], z: u8[16]) -> f32[10] {{
  %x = f32[10]{{0}} parameter(0)
  %y = bf16[3,8]{{1,0}} parameter(1)
  %z = u8[16]{{0}} parameter(2)
{lines}
}}
"""


# name: (instructions, bytes of each of four devices). x: 10 elements of 4 bytes,
# y: 24 of 2 bytes, z: 16 of 1 byte.
FORMS = {
    "all-reduce": ([f"%r = f32[10]{{0}} all-reduce(%x), {ALL}, to_apply=%add"], 72),
    "all-reduce of several operands: each counts": (
        [f"%r = (f32[10]{{0}}, bf16[3,8]{{1,0}}) all-reduce(%x, %y), {ALL}"],
        72 + 2 * 3 * 6 * 2,
    ),
    "start and done, whose shape is that of the result": (
        [
            f"%s = f32[10]{{0}} all-reduce-start(%x), {ALL}, to_apply=%add",
            "%d = f32[10]{0} all-reduce-done(%s)",
        ],
        72,
    ),
    "start and done, whose shape has operands and results": (
        [
            f"%s = ((f32[10]{{0}}), f32[10]{{0}}) all-reduce-start(%x), {ALL}",
            "%d = f32[10]{0} all-reduce-done(%s)",
        ],
        72,
    ),
    "all-gather": ([f"%r = u8[64]{{0}} all-gather(%z), {ALL}, dimensions={{0}}"], 48),
    "all-gather-start": (
        [
            f"%s = (u8[16]{{0}}, u8[64]{{0}}) all-gather-start(%z), {ALL}",
            "%d = u8[64]{0} all-gather-done(%s)",
        ],
        48,
    ),
    "all-gather-start of two": (
        [
            "%s = ((u8[16]{0}, f32[10]{0}), (u8[64]{0}, f32[40]{0})) "
            f"all-gather-start(%z, %x), {ALL}",
            "%d = (u8[64]{0}, f32[40]{0}) all-gather-done(%s)",
        ],
        48 + 120,
    ),
    "reduce-scatter": ([f"%r = u8[4]{{0}} reduce-scatter(%z), {ALL}"], 12),
    "reduce-scatter-start": (
        [
            f"%s = ((u8[16]{{0}}), u8[4]{{0}}) reduce-scatter-start(%z), {ALL}",
            "%d = u8[4]{0} reduce-scatter-done(%s)",
        ],
        12,
    ),
    "all-to-all of an array": ([f"%r = u8[16]{{0}} all-to-all(%z), {ALL}"], 12),
    "all-to-all of a piece for each": (
        [
            "%p = u8[1]{0} slice(%z), slice={[0:1]}",
            "%r = (u8[1], u8[1], u8[1], /*i=3*/u8[1]) "
            f"all-to-all(%p, %p, %p, /*i=3*/%p), {ALL}",
        ],
        3,
    ),
    "collective-broadcast: the last in the chain sends nothing": (
        [
            "%r = u8[16]{0} collective-broadcast(%z), channel_id=1, "
            "replica_groups={{3,0,1,2}}"
        ],
        [16, 16, 0, 16],
    ),
    "collective-permute: to oneself is free": (
        [
            "%r = f32[10]{0} collective-permute(%x), channel_id=1, "
            "source_target_pairs={{0,1},{1,1},{3,0}}"
        ],
        [40, 0, 0, 40],
    ),
    "collective-permute-start, with contexts, of two": (
        [
            "%s = ((f32[10]{0}, u8[16]{0}), (f32[10]{0}, u8[16]{0}), u32[], u32[]) "
            "collective-permute-start(%x, %z), channel_id=1, "
            "source_target_pairs={{0,1},{1,0}}",
            "%d = (f32[10]{0}, u8[16]{0}) collective-permute-done(%s)",
        ],
        [56, 56, 0, 0],
    ),
    "different devices do not add up": (
        [
            "%r = f32[10]{0} collective-permute(%x), channel_id=1, "
            "source_target_pairs={{0,1}}",
            "%q = u8[16]{0} collective-permute(%z), channel_id=2, "
            "source_target_pairs={{2,3}}",
        ],
        [40, 0, 16, 0],
    ),
    "groups": (
        [
            "%r = f32[10]{0} all-reduce(%x), channel_id=1, "
            "replica_groups={{0,2,3},{1}}, use_global_device_ids=true"
        ],
        [64, 0, 64, 64],
    ),
    "groups counted off": (
        [
            "%r = f32[10]{0} all-reduce(%x), channel_id=1, "
            "replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true"
        ],
        40,
    ),
    "groups along axes of a mesh": (
        [
            "%r = f32[20]{0} all-gather(%x), channel_id=1, "
            "replica_groups=mesh['a'=2,'b'=2] {'b'}, use_global_device_ids=true"
        ],
        40,
    ),
    "all devices": (
        [
            "%r = f32[10]{0} all-reduce(%x), channel_id=1, replica_groups={}, "
            "use_global_device_ids=true"
        ],
        72,
    ),
    "replica 0 with all its partitions": (
        ["%r = f32[10]{0} all-reduce(%x), channel_id=1, replica_groups={{0}}"],
        72,
    ),
    "replicas, of which there is one": (
        ["%r = f32[10]{0} all-reduce(%x), replica_groups={}, to_apply=%add"],
        0,
    ),
    "four bits packed": (
        [
            "%q = s4[11]{0:E(4)} convert(%z)",
            f"%r = s4[44]{{0:E(4)}} all-gather(%q), {ALL}",
        ],
        17,  # 3 times 5.5 bytes
    ),
    "operands with their shapes": (
        [
            "%r = (f32[10]{0}, bf16[3,8]{1,0}) all-reduce(f32[10]{0} %x, "
            f"bf16[3,8]{{1,0}} %y), {ALL}"
        ],
        72 + 72,
    ),
    "nothing": (["%r = f32[10]{0} add(%x, %x)"], 0),
}


@pytest.mark.parametrize(("body", "expected"), FORMS.values(), ids=FORMS)
def test_forms(body, expected):
    sent = bytes_sent(module(*body))
    assert sent.tolist() == np.broadcast_to(expected, 4).tolist()


CALLED = {
    "wrapped in an asynchronous computation": (
        [
            "%s = ((f32[10]{0}), f32[40]{0}, s32[]) async-start(%x), calls=%gather",
            "%u = ((f32[10]{0}), f32[40]{0}, s32[]) async-update(%s), calls=%gather",
            "%d = f32[40]{0} async-done(%u), calls=%gather",
        ],
        120,
    ),
    "call": (["%c = f32[40]{0} call(%x), to_apply=%gather"], 120),
    "called twice": (
        [
            "%c = f32[40]{0} call(%x), to_apply=%gather",
            "%f = f32[40]{0} fusion(%x), kind=kLoop, calls=%gather",
        ],
        240,
    ),
    "loop, and its condition once more": (
        [
            "%w = f32[10]{0} while(%x), condition=%most, body=%turn, "
            'backend_config={"known_trip_count":{"n":"5"}}'
        ],
        5 * 40 + 6 * 72,
    ),
    "branches by number": (
        [
            "%c = f32[10]{0} conditional(%i, %x, %x, %x), "
            "branch_computations={%turn, %most, %pass}"
        ],
        72,
    ),
    "branches by truth": (
        [
            "%c = f32[10]{0} conditional(%p, %x, %x), true_computation=%turn, "
            "false_computation=%pass"
        ],
        40,
    ),
    "nested": (["%c = f32[10]{0} call(%x), to_apply=%nest"], 3 * (2 * 40 + 3 * 72)),
}
BEFORE = f"""
%gather (g: f32[10]) -> f32[40] {{
  %g = f32[10]{{0}} parameter(0)
  ROOT %gr = f32[40]{{0}} all-gather(%g), {ALL}, dimensions={{0}}
}}

%turn (t: f32[10]) -> f32[10] {{
  %t = f32[10]{{0}} parameter(0)
  ROOT %tr = f32[10]{{0}} collective-permute(%t), channel_id=3, \
source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
}}

%most (m: f32[10]) -> pred[] {{
  %m = f32[10]{{0}} parameter(0)
  %mr = f32[10]{{0}} all-reduce(%m), {ALL}, to_apply=%add
  ROOT %mp = pred[] custom-call(%mr), custom_call_target="less"
}}

%pass (p: f32[10]) -> f32[10] {{
  ROOT %p = f32[10]{{0}} parameter(0)
}}

%inner (n: f32[10]) -> f32[10] {{
  %n = f32[10]{{0}} parameter(0)
  ROOT %nw = f32[10]{{0}} while(%n), condition=%most, body=%turn, \
backend_config={{"known_trip_count":{{"n":"2"}}}}
}}

%always (k: f32[10]) -> pred[] {{
  %k = f32[10]{{0}} parameter(0)
  ROOT %kp = pred[] constant(true)
}}

%nest (o: f32[10]) -> f32[10] {{
  %o = f32[10]{{0}} parameter(0)
  ROOT %ow = f32[10]{{0}} while(%o), condition=%always, body=%inner, \
backend_config={{"known_trip_count":{{"n":"3"}}}}
}}
"""


@pytest.mark.parametrize(("body", "expected"), CALLED.values(), ids=CALLED)
def test_called_computations(body, expected):
    sent = bytes_sent(module(*body, before=BEFORE))
    assert sent.tolist() == [expected] * 4


def test_branches_count_for_each_device():
    before = BEFORE + (
        "%one (q: f32[10]) -> f32[10] {\n  %q = f32[10]{0} parameter(0)\n"
        "  ROOT %qr = f32[10]{0} collective-permute(%q), channel_id=9, "
        "source_target_pairs={{2,0}}\n}\n"
        "%two (v: f32[10]) -> f32[10] {\n  %v = f32[10]{0} parameter(0)\n"
        "  ROOT %vr = f32[10]{0} collective-permute(%v), channel_id=9, "
        "source_target_pairs={{1,0}}\n}\n"
    )
    body = "%c = f32[10]{0} conditional(%i, %x, %x), branch_computations={%one, %two}"
    assert bytes_sent(module(body, before=before)).tolist() == [0, 40, 40, 0]


def test_replicas_are_devices_too():
    line = "%r = f32[10]{0} all-reduce(%x), replica_groups={}, to_apply=%add"
    assert bytes_sent(module(line, header="replica_count=4")).tolist() == [72] * 4
    permute = "%r = f32[10]{0} collective-permute(%x), source_target_pairs={{0,1}}"
    assert bytes_sent(module(permute, header="replica_count=2")).tolist() == [40, 0]


GROUPS = {
    "[4,2]<=[8]": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "[2,4]<=[4,2]T(1,0)": [[0, 2, 4, 6], [1, 3, 5, 7]],
    "[4,2]<=[2,2,2]T(0,2,1)": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "mesh['a'=2,'b'=4] {'a'}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "mesh['a'=2,'b'=4] {'b'}": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "mesh['a'=2,'b'=2,'c'=2] {'a','c'}": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "mesh['a'=2,'b'=2,'c'=2] {'c','a'}": [[0, 4, 1, 5], [2, 6, 3, 7]],
    "mesh['a'=8] {'a':(1)2}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "mesh['a'=8] {'a':(2)2}": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "mesh['a'=8] {'a':(4)2,'a':(1)2}": [[0, 4, 1, 5], [2, 6, 3, 7]],
    "mesh['a'=4,'b'=1,'c'=2], device_ids=([2,4]T(1,0)) {'a'}": [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ],
    "mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'a'}": [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ],
    "mesh['a'=2,'b'=4], device_ids=([8]) {'b','a'}": [[0, 4, 1, 5, 2, 6, 3, 7]],
    "{{7,6,5,4,3,2,1,0}}": [[7, 6, 5, 4, 3, 2, 1, 0]],
    "{{0, 1, 2, 3}, {4, 5, 6, 7}}": [[0, 1, 2, 3], [4, 5, 6, 7]],
}


@pytest.mark.parametrize("written", GROUPS)
def test_groups(written):
    from relaxjax.programs._hlo_groups import groups_of

    line = (
        f"%r = f32[10]{{0}} all-gather(%x), channel_id=1, replica_groups={written}, "
        "dimensions={0}, use_global_device_ids=true"
    )
    parsed = parse(module(line, header="num_partitions=8"))
    instruction = parsed.computations["main"][-1]
    assert groups_of(instruction, parsed) == GROUPS[written]


LOOP = "%w = f32[10]{0} while(%x), condition=%always, body="


@pytest.mark.parametrize(
    ("body", "header", "message"),
    [
        (f"{LOOP}%turn", "", r"loop %w, whose number of turns.*lax.scan"),
        (
            "%r = f32[10] ragged-all-to-all(%x, %y)",
            "",
            "%r: the bytes of 'ragged-all-t",
        ),
        ("%r = (f32[10]) send(%x), channel_id=2", "", "%r: the bytes of 'send' depend"),
        (
            "%r = (f32[10], f32[10]) ragged-all-to-all-start(%x, %y)",
            "",
            "%r: the bytes of 'ragged-all-t",
        ),
        (
            "%r = f32[10] all-reduce(%x), channel_id=1, replica_groups={{0;1}}",
            "",
            "replica_groups={{0;1}} is not understood",
        ),
        (
            "%r = f32[10] collective-permute(%x), source_target_pairs={{0>1}}",
            "",
            "%r: source_target_pairs are missing, or not of the form",
        ),
        (
            f"%r = f32[10]{{0}} all-reduce(%x), {ALL}",
            "num_partitions=2",
            "%r: its groups name device 2, and the module is for 2: is num_partitions",
        ),
        (
            f"%r = f32[10]{{0}} all-reduce(%x), {ALL}",
            "replica_count=2, num_partitions=2",
            r"%r: programs with several replicas and several partitions \(2 x 2\)",
        ),
    ],
)
def test_what_is_not_counted(body, header, message):
    text = module(body, before=BEFORE, header=header or "num_partitions=4")
    with pytest.raises(ValueError, match=message):
        bytes_sent(text)


FLAG = """%flag (p: (pred[], f32[10])) -> pred[] {
  %p = (pred[], f32[10]) parameter(0)
  ROOT %due = pred[] get-tuple-element(%p), index=0
}

%once (p: (pred[], f32[10])) -> (pred[], f32[10]) {
  %p = (pred[], f32[10]) parameter(0)
  %y = f32[10]{0} get-tuple-element(%p), index=1
  %s = f32[10]{0} all-reduce(%y), ALL, to_apply=%add
  %no = pred[] constant(END)
  %copied = pred[] copy(%no)
  ROOT %t = (pred[], f32[10]{0}) tuple(%copied, %s)
}
"""


def test_a_loop_that_ends_itself_counts_as_one_turn():
    loop = "%w = (pred[], f32[10]{0}) while(%x), condition=%flag, body=%once"

    def text(end):
        return module(loop, before=FLAG.replace("END", end).replace("ALL", ALL))

    assert bytes_sent(text("false")).tolist() == [72] * 4
    with pytest.raises(ValueError, match="whose number of turns"):
        bytes_sent(text("true"))


def test_a_silent_loop_of_unknown_length():
    assert not bytes_sent(module(f"{LOOP}%pass", before=BEFORE)).any()


def test_two_modules_are_no_program():
    with pytest.raises(ValueError, match="a second module begins"):
        bytes_sent(f"{module('ROOT %r = f32[10] copy(%x)')}\n\n{module()}")


def test_text_without_an_entry():
    with pytest.raises(
        ValueError, match=r"no ENTRY computation: pass compiled.as_text"
    ):
        bytes_sent("HloModule nothing")


def test_names_without_percent_signs():
    text = module(f"%r = f32[10]{{0}} all-reduce(f32[10]{{0}} %x), {ALL}")
    assert bytes_sent(text.replace("%", "")).tolist() == [72] * 4


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        ("f32[]", 4),
        ("(f32[2]{0:T(128)}, (s32[], pred[3]{0}))", 8 + 4 + 3),
        ("s4[3]{0}", 3),
        ("s4[3]{0:E(4)}", 2),
        ("f8e4m3fn[7]", 7),
        ("c64[2]", 16),
        ("(token[], opaque[])", 0),
        ("f32[0,5]{1,0}", 0),
        ("f32[<=8,3]{1,0}", 96),
    ],
)
def test_bytes_of_shapes(shape, nbytes):
    assert shape_nbytes(shape) == nbytes
