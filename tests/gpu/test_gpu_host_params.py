"""Params in host memory, in the program for one H100: copies in order, and hidden.

A six-layer perceptron, 4096 rows of 1024: a leaf takes 4 MiB, 84 us at 50 GB/s.
"""

import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.programs.host_copies import PROFILE, profile
from benchmarks.programs.host_program import host_program_text
from benchmarks.programs.overlap_models import perceptron, transformer
from relaxjax import ps
from relaxjax.programs import Instruction, is_host_copy, parse
from relaxjax.schedule import Device, Graph, Link, layer_order, replay

DEVICE = Device(flops=4e14, bandwidth=3.35e12)
BUS = Link(latency=1e-5, bandwidth=5e10)
FORWARD = [f"layer{i}" for i in range(6)]
ORDERS = {
    "forward": FORWARD,
    "reversed": FORWARD[::-1],
    "mixed": [FORWARD[i] for i in (2, 0, 5, 1, 4, 3)],
}
MIB = 2**20


def zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


@pytest.fixture(scope="module")
def texts(mesh):
    del mesh  # skips where nothing can be compiled for GPUs
    training = perceptron()
    params, batch = zeros((training.params, training.batch))
    params = ps.to_host(params)
    gradient = {
        name: jax.grad(ps.from_host(training.loss, order=order, bucket_bytes=1))
        for name, order in ORDERS.items()
    }
    return {
        name: host_program_text(jax.jit(fn), params, batch)
        for name, fn in gradient.items()
    }


def body_of(text: str) -> list[Instruction]:
    module = parse(text)
    assert module.scheduled
    return module.computations[module.entry or ""]


def copies(body: list[Instruction]) -> tuple[list[Any], list[Any]]:
    """Starts of copies to the device, and to the host."""
    starts = [i for i in body if is_host_copy(i)]
    to_host = re.compile(r"\(\S*S\(5\)")
    up = [i for i in starts if to_host.match(i.shape)]
    return [i for i in starts if i not in up], up


def argument(body: list[Instruction], copy: Instruction) -> str:
    """The params' leaf that is copied, through the barriers' tuples."""
    made = {i.name: i for i in body}
    at = made[copy.operands[0]]
    while at.opcode != "parameter":
        index = re.search(r"index=(\d+)", at.rest)
        of_tuple = at.opcode == "get-tuple-element"
        at = made[at.operands[0]]
        if of_tuple and index:
            at = made[at.operands[int(index[1])]]
    return FORWARD[int(at.operands[0])]


def leaf_of_result(body: list[Instruction], copy: Instruction) -> str:
    """The leaf whose gradient is copied: its place among the results."""
    made = {i.name: i for i in body}
    (root,) = [i for i in body if i.root]
    (place,) = [
        place
        for place, name in enumerate(root.operands)
        if _made_by(made, name).operands[0] == copy.name
    ]
    return FORWARD[place]


def _made_by(made: dict[str, Instruction], name: str) -> Instruction:
    at = made[name]
    while at.opcode == "get-tuple-element":
        index = re.search(r"index=(\d+)", at.rest)
        assert index
        at = made[made[at.operands[0]].operands[int(index[1])]]
    return at


@pytest.mark.parametrize("name", ORDERS)
def test_copies_start_in_the_order_asked_for(texts, name):
    body = body_of(texts[name])
    pulls, pushes = copies(body)
    assert [argument(body, copy) for copy in pulls] == ORDERS[name]
    assert [leaf_of_result(body, copy) for copy in pushes] == ORDERS[name][::-1]
    done = {i.operands[0]: i for i in body if i.opcode == "copy-done"}
    for each in (pulls, pushes):
        for earlier, later in itertools.pairwise(each):
            assert body.index(done[earlier.name]) < body.index(later)


@pytest.mark.parametrize("name", ORDERS)
def test_every_leaf_is_copied_once_each_way(texts, name):
    run = replay(texts[name], device=DEVICE, link=BUS)
    assert [t.nbytes for t in run.transfers] == [4 * MIB] * 12


def test_copies_hide_behind_earlier_layers_in_forward_order_alone(texts):
    forward, wrong = (
        replay(texts[name], device=DEVICE, link=BUS) for name in ("forward", "reversed")
    )
    assert forward.forward_share >= 0.45
    assert wrong.forward_share <= 0.05
    assert forward.exposed < wrong.exposed


def test_params_lie_in_host_memory(texts):
    """On the device are the batch and nothing else; gradients come out on the host."""
    header = texts["mixed"].splitlines()[0]
    arguments, results = header.split("entry_computation_layout=")[1].split("->")
    assert arguments.count("S(5)") == results.count("S(5)") == 6


@pytest.mark.slow
def test_a_profile_makes_the_order_felt(mesh, tmp_path):
    """Told what copies take, XLA hides those of a good order behind early layers."""
    del mesh
    training = transformer(layers=2)
    params, batch = zeros((training.params, training.batch))
    graph = Graph.from_function(training.loss, params, batch)
    total = {}
    for name, order in {
        "layer": layer_order(graph),
        "reversed": layer_order(graph)[::-1],
    }.items():
        fn = jax.jit(ps.from_host(training.loss, order=order))
        text = host_program_text(fn, ps.to_host(params), batch)
        (tmp_path / "told.pbtxt").write_text(profile(text, DEVICE, BUS))
        options = {PROFILE: str(tmp_path / "told.pbtxt")}
        told = host_program_text(fn, ps.to_host(params), batch, options=options)
        for how, program in (("untold", text), ("told", told)):
            total[name, how] = replay(program, device=DEVICE, link=BUS).total
    assert total["layer", "told"] < 0.9 * total["layer", "untold"]
    assert total["layer", "told"] < 0.9 * total["reversed", "told"]
    assert total["layer", "untold"] > 0.95 * total["reversed", "untold"]
