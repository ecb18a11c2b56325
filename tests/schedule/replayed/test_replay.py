"""Exposed communication of small scheduled modules whose answer is known by hand.

The device computes 100 flops and moves 10 000 bytes in a second (so that flops decide
the time of products, and bytes that of the rest); the link takes 1 second and 1 more
for each 1000 bytes. Arrays are 250 floats, or 1000 bytes: a permutation takes 2 s.
"""

import pytest

from relaxjax.schedule import Device, Link, replay

DEVICE = Device(flops=100.0, bandwidth=10_000.0)
LINK = Link(latency=1.0, bandwidth=1000.0)
PAIRS = "source_target_pairs={{0,1},{1,0}}"
BACK = 'metadata={op_name="jit(step)/transpose(jvp(loss))/dot_general"}'

# A product of [5,10] and [10,k]: 100 k flops, or k seconds.
DOT = "dot(%p, %q{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
START = "(f32[250], f32[250]) collective-permute-start"


def work(name: str, seconds: int, rest: str = BACK) -> str:
    return f"%{name} = f32[5,{seconds}] {DOT.format(k=seconds)}, {rest}"


def start(name: str, operand: str = "x") -> str:
    return f"%{name} = {START}(%{operand}), {PAIRS}"


def done(name: str, of: str) -> str:
    return f"%{name} = f32[250] collective-permute-done(%{of})"


def module(*body: str, before: str = "", header: str = "is_scheduled=true") -> str:
    arguments = "\n".join(
        f"  %q{k} = f32[10,{k}] parameter({i})" for i, k in enumerate((1, 2, 3, 5), 2)
    )
    lines = "\n".join(f"  {line}" for line in body)
    return f"""HloModule test, {header}, num_partitions=2
{before}
ENTRY %main (x: f32[250], p: f32[5,10]) -> f32[250] {{
  %x = f32[250]{{0}} parameter(0)
  %p = f32[5,10] parameter(1)
{arguments}
{lines}
}}
"""


def run(*body: str, before: str = ""):
    return replay(module(*body, before=before), device=DEVICE, link=LINK)


CASES = {
    # name: (instructions, total, compute, exposed)
    "hidden": ([start("s"), work("w", 3), done("d", "s")], 3, 3, 0),
    "half hidden": ([start("s"), work("w", 1), done("d", "s")], 2, 1, 1),
    "after the work": ([work("w", 3), start("s"), done("d", "s")], 5, 3, 2),
    "synchronous": (
        [work("w", 3), f"%r = f32[250] collective-permute(%x), {PAIRS}"],
        5,
        3,
        2,
    ),
    "one link: the second waits for the first": (
        # 0-2 and 2-4 on the link; work until 1.
        [start("s"), start("t"), work("w", 1), done("d", "s"), done("e", "t")],
        4,
        1,
        3,
    ),
    "each pays its own latency": (
        [
            f"%s = ((f32[250], f32[250])) collective-permute-start(%x, %x), {PAIRS}",
            "%d = (f32[250], f32[250]) collective-permute-done(%s)",
        ],
        3,
        0,
        3,
    ),
    "a chain of two": (
        # work 0-1; first 1-3 under work 1-4; second 4-6 under work 4-5.
        [
            work("w", 1),
            start("s"),
            work("v", 3),
            done("d", "s"),
            start("t", "d"),
            work("u", 1),
            done("e", "t"),
        ],
        6,
        5,
        1,
    ),
    "a small transfer in front of much work does not hide a large one": (
        # 4 bytes: 1.004 seconds, hidden; then 2 seconds with nothing beside them.
        [
            f"%s = (f32[1], f32[1]) collective-permute-start(%one), {PAIRS}",
            work("w", 5),
            "%d = f32[1] collective-permute-done(%s)",
            start("t"),
            done("e", "t"),
        ],
        7,
        5,
        2,
    ),
    "nothing to send": (
        [
            f"%s = {START}(%x), source_target_pairs={{{{0,0}}}}",
            done("d", "s"),
        ],
        0,
        0,
        0,
    ),
    "by memory": (["%y = f32[250] add(%x, %x)"], 0.3, 0.3, 0),
    "a copy from host memory": (
        # 1000 bytes: 2 seconds on the link, under work of 3; then 2 to the host.
        [
            "%s = (f32[250]{0}, f32[250]{0:S(5)}, u32[]) copy-start(%x)",
            work("w", 3),
            "%d = f32[250]{0} copy-done(%s)",
            "%t = (f32[250]{0:S(5)}, f32[250]{0}, u32[]) copy-start(%d)",
            "%e = f32[250]{0:S(5)} copy-done(%t)",
        ],
        5,
        3,
        2,
    ),
    "a copy within host memory": (
        [
            "%s = (f32[250]{0:S(5)}, f32[250]{0:S(5)}) copy-start(%x)",
            "%d = f32[250]{0:S(5)} copy-done(%s)",
        ],
        0.3,
        0.3,
        0,
    ),
    "a copy within the device": (
        ["%s = (f32[250], f32[250]) copy-start(%x)", "%d = f32[250] copy-done(%s)"],
        0.3,
        0.3,
        0,
    ),
}


@pytest.mark.parametrize(
    ("body", "total", "compute", "exposed"), CASES.values(), ids=CASES
)
def test_seconds(body, total, compute, exposed):
    result = run("%one = f32[1] constant({1})", *body)
    assert result.total == pytest.approx(total)
    assert result.compute == pytest.approx(compute)
    assert result.exposed == pytest.approx(exposed)
    assert result.total == pytest.approx(result.compute + result.exposed)


def test_transfers():
    first, second = run(
        start("s"), start("t"), work("w", 1), done("e", "t"), done("d", "s")
    ).transfers
    assert first == ("s", 1000, 0.0, 2.0, 0.0)
    assert second == ("t", 1000, 2.0, 4.0, 3.0)  # waited for from 1 to 4


def test_busiest_device_and_bytes_of_an_all_reduce():
    line = (
        "%r = f32[250] all-reduce(%x), channel_id=1, replica_groups={{0,1}}, "
        "use_global_device_ids=true"
    )
    assert [t.nbytes for t in run(line).transfers] == [1000]  # 2 (n - 1) / n
    one = "%r = f32[250] collective-permute(%x), source_target_pairs={{1,0}}"
    assert [t.nbytes for t in run(one).transfers] == [1000]


def test_share_of_the_backward_pass():
    forward = 'metadata={op_name="jit(step)/jvp(loss)/dot_general"}'
    result = run(
        work("a", 5, forward),
        work("b", 1),
        start("s"),
        work("c", 5, forward),
        work("d", 3),
        done("e", "s"),
        work("f", 1),
    )
    assert (result.backward_flops, result.backward_flops_under) == (500, 300)
    assert result.share == 0.6
    assert (result.flops, result.flops_under) == (1500, 800)
    assert result.share_of_all == 800 / 1500
    assert result.forward_share == 500 / 1000
    assert run(work("a", 5, forward)).share == 0.0


BODY = f"""
%fused (a: f32[5,10], b: f32[10,3]) -> f32[5,3] {{
  %a = f32[5,10] parameter(0)
  %b = f32[10,3] parameter(1)
  ROOT %ab = f32[5,3] dot(%a, %b), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{0}}
}}

%turn (t: f32[250]) -> f32[250] {{
  %t = f32[250] parameter(0)
  %ts = {START}(%t), {PAIRS}
  %tw = f32[5,1] custom-call(%tp, %tq), custom_call_target="__cublas$gemm", \
backend_config={{"gemm_backend_config":{{"dot_dimension_numbers":{{\
"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}}}}
  %tp = f32[5,10] constant({{...}})
  %tq = f32[10,1] constant({{...}})
  ROOT %td = f32[250] collective-permute-done(%ts)
}}

%still (u: f32[250]) -> f32[250] {{
  ROOT %u = f32[250] parameter(0)
}}

%more (m: f32[250]) -> pred[] {{
  %m = f32[250] parameter(0)
  ROOT %c = pred[] constant(true)
}}

%wrapped (y: f32[250]) -> f32[250] {{
  %y = f32[250] parameter(0)
  ROOT %yr = f32[250] collective-permute(%y), {PAIRS}
}}

%slice (big: f32[1000000], i: s32[]) -> f32[250] {{
  %big = f32[1000000] parameter(0)
  %i = s32[] parameter(1)
  ROOT %part = f32[250] dynamic-slice(%big, %i), dynamic_slice_sizes={{250}}
}}

%update (big: f32[1000000], x: f32[250], i: s32[]) -> f32[1000000] {{
  %big = f32[1000000] parameter(0)
  %flat = f32[1000000] bitcast(%big)
  %x = f32[250] parameter(1)
  %i = s32[] parameter(2)
  ROOT %whole = f32[1000000] dynamic-update-slice(%flat, %x, %i)
}}
"""
LOOP = "%l = f32[250] while(%x), condition=%more, body=%turn"
CALLED = {
    "product in a fusion": (["%f = f32[5,3] fusion(%p, %q3), calls=%fused"], 3, 0),
    "loop": ([LOOP + ', backend_config={"known_trip_count":{"n":"4"}}'], 4, 4),
    "slowest branch": (
        [
            "%c = f32[250] conditional(%x, %x, %x), "
            "branch_computations={%still, %turn, %wrapped}"
        ],
        1,
        1,
    ),
    "call": (["%c = f32[250] call(%x), to_apply=%wrapped"], 0, 2),
    "wrapped": (
        [
            "%s = ((f32[250]), f32[250], s32[]) async-start(%x), calls=%wrapped",
            work("w", 1),
            "%t = ((f32[250]), f32[250], s32[]) async-update(%s), calls=%wrapped",
            "%d = f32[250] async-done(%t), calls=%wrapped",
        ],
        1,
        1,
    ),
    "wrapped as a call": (
        [
            "%s = ((f32[250]), f32[250]) call-start(%x), to_apply=%wrapped",
            work("w", 1),
            "%d = f32[250] call-done(%s)",
        ],
        1,
        1,
    ),
    "a slice of a large array": (
        ["%f = f32[250] fusion(%big, %i), kind=kLoop, calls=%slice"],
        0.2 + 0.0004,
        0,
    ),
    "a slice that is read apart": (
        [
            "%s = ((f32[1000000], s32[]), f32[250], u32[]) fusion-start(%big, %i), "
            "kind=kLoop, calls=%slice",
            "%d = f32[250] fusion-done(%s)",
        ],
        0.2 + 0.0004,
        0,
    ),
    "a slice into a large array": (
        ["%f = f32[1000000] fusion(%big, %x, %i), kind=kLoop, calls=%update"],
        0.2 + 0.0004,
        0,
    ),
}


@pytest.mark.parametrize(("body", "compute", "exposed"), CALLED.values(), ids=CALLED)
def test_called_computations(body, compute, exposed):
    more = ["%big = f32[1000000] parameter(7)", "%i = s32[] parameter(8)"]
    result = run(*more, *body, before=BODY)
    assert result.compute == pytest.approx(compute)
    assert result.exposed == pytest.approx(exposed)


def test_a_loop_of_unknown_length():
    with pytest.raises(ValueError, match="replay: a collective in the loop %l, whose"):
        run(LOOP, before=BODY)


def test_what_is_not_scheduled():
    for text in (module(header="entry"), "HloModule x, is_scheduled=true"):
        with pytest.raises(ValueError, match="replay: the text must be a module"):
            replay(text)
