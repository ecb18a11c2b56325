"""Params in host memory: the same numbers, copied in the order asked for.

On CPU no program copies anything, as host memory is the device's own: the order is
shown in the traced program and in the one that is lowered for CUDA; `tests/gpu` has the
compiled one.
"""

import re
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import Literal

import relaxjax
from relaxjax import ps, schedule
from relaxjax.ps import _from_host
from tests import helpers
from tests.ps.forms import step_of

NAMES = ["layer1/b", "layer1/w", "layer2/w", "scale"]
ORDERS = {
    "layer": ["layer1/w", "layer1/b", "scale", "layer2/w"],
    "reversed": ["layer2/w", "scale", "layer1/b", "layer1/w"],
    "mixed": ["scale", "layer1/w", "layer2/w", "layer1/b"],
}
SHAPES = {(7,): "layer1/b", (5, 7): "layer1/w", (7, 3): "layer2/w", (): "scale"}
BATCH = helpers.batches(1, rows=8)[0]
orders = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)


def on_device(tree: Any) -> Any:
    return jax.device_put(tree, jax.memory.Space.Device)


def kinds(tree: Any) -> set[str]:
    return {x.sharding.memory_kind for x in jax.tree.leaves(tree)}


def updated_on_the_host(optimizer):
    """Gradients, state and update in host memory."""
    loss = ps.from_host(helpers.loss_fn, order=ORDERS["mixed"], bucket_bytes=1)
    step = step_of(optimizer, loss)
    return lambda *args: (*ps.to_host(step(*args)[:2]), {})


def updated_on_the_device(optimizer):
    """The params alone in host memory."""

    def step(params, opt_state, batch):
        params, opt_state, _ = step_of(optimizer)(params, opt_state, batch)
        return ps.to_host(params), opt_state, {}

    return ps.from_host(step, order=ORDERS["mixed"], bucket_bytes=1)


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adam(1e-2)])
@pytest.mark.parametrize("form", [updated_on_the_host, updated_on_the_device])
def test_twenty_steps_equal_those_of_params_on_the_device(form, optimizer):
    data = helpers.batches(20, rows=8)
    start = jax.tree.map(jnp.asarray, helpers.problem())
    params, state = ps.to_host(start), optimizer.init(start)
    on_host = form is updated_on_the_host
    state = ps.to_host(state) if on_host else jax.device_put(state, jax.devices()[0])
    inner, traces = form(optimizer), []

    @jax.jit
    def step(*args):
        traces.append(args)
        return inner(*args)

    for batch in data:
        params, state, _ = step(params, state, batch)
    assert len(traces) == 1
    assert kinds(params) == {"pinned_host"}
    assert kinds(state) <= {"pinned_host" if on_host else "device"}
    alone, state_alone = helpers.train_alone(optimizer, data)
    helpers.assert_close(params, alone, 1e-6)
    helpers.assert_close(state, state_alone, 1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("mesh", [helpers.mesh_of(2), relaxjax.emulate(2)])
def test_beside_other_workers(mesh):
    tx = optax.chain(relaxjax.all_reduce("data"), optax.adam(1e-2))
    data = helpers.batches(3, rows=8)
    params, state = relaxjax.init(tx, helpers.problem(), mesh)
    params = ps.to_host(params)
    step = relaxjax.data_parallel(updated_on_the_device(tx), mesh)
    for batch in data:
        params, state, _ = step(params, state, batch)
    assert kinds(params) == {"pinned_host"}
    alone, _ = helpers.train_alone(optax.adam(1e-2), data)
    helpers.assert_close(relaxjax.consensus(on_device(params)), alone, 1e-6)


class Copy(NamedTuple):
    """A copy in a program, and the copies that it waits for."""

    shape: tuple[int, ...]
    to: str
    after: frozenset[int]

    @property
    def leaf(self) -> str:
        return SHAPES[self.shape]


def copies_in(jaxpr: Any) -> list[Copy]:
    """The copies of a traced program, as they are written."""
    waits: dict[Any, frozenset[int]] = {}
    found: list[Copy] = []

    def of(atoms: Any) -> frozenset[int]:
        variables = [x for x in atoms if not isinstance(x, Literal)]
        return frozenset().union(*(waits.get(x, frozenset()) for x in variables))

    for eqn in jaxpr.eqns:
        after = of(eqn.invars)
        if eqn.primitive.name == "device_put":
            for x, y, to in zip(
                eqn.invars, eqn.outvars, eqn.params["devices"], strict=True
            ):
                waits[y] = of([x]) | {len(found)}
                found.append(Copy(x.aval.shape, to.name, of([x])))
        else:
            waits |= dict.fromkeys(eqn.outvars, after)
    return found


def gradient(**how: Any) -> Any:
    loss = ps.from_host(helpers.loss_fn, **how)
    return jax.grad(loss), (ps.to_host(helpers.problem()), BATCH)


@orders
def test_each_copy_waits_for_the_one_before(order):
    fn, args = gradient(order=order, bucket_bytes=1)
    found = copies_in(jax.make_jaxpr(fn)(*args))
    pulls = [copy for copy in found if copy.to == "Device"]
    pushes = [copy for copy in found if copy.to == "Host"]
    assert [copy.leaf for copy in pulls] == order
    assert [copy.leaf for copy in pushes] == order[::-1]
    for number, copy in enumerate(found[: len(order)]):
        assert copy.after == frozenset(range(number))
    for number, copy in enumerate(found[len(order) :], len(order)):
        assert set(range(len(order), number)) <= copy.after


def test_nothing_but_copies_is_added():
    """No arithmetic, forward or backward, beside that of the function."""
    fn, args = gradient(bucket_bytes=1)
    plain = jax.make_jaxpr(jax.grad(helpers.loss_fn))(helpers.problem(), BATCH)
    found = [eqn.primitive.name for eqn in jax.make_jaxpr(fn)(*args).eqns]
    added = Counter(found) - Counter(eqn.primitive.name for eqn in plain.eqns)
    assert set(added) == {"device_put", "optimization_barrier"}


@orders
def test_the_program_for_cuda_copies_in_the_order_asked_for(order):
    """As it is lowered, from where no compiler may turn what barriers hold."""
    fn, args = gradient(order=order, bucket_bytes=1)
    lax = jax.export.DisabledSafetyCheck.custom_call("annotate_device_placement")
    exported = jax.export.export(
        jax.jit(fn), platforms=["cuda"], disabled_checks=[lax]
    )(*args)
    placed = re.findall(
        r'annotate_device_placement.*placement = "(\w+)".*-> tensor<([\dx]*)f32>',
        exported.mlir_module(),
    )
    shapes = [tuple(map(int, dims.split("x")[:-1])) for _, dims in placed]
    leaves = [SHAPES[shape] for shape in shapes]
    assert leaves == [*order, *order[::-1]]
    n = len(order)
    assert [to for to, _ in placed] == ["device"] * n + ["pinned_host"] * n


def test_leaves_side_by_side_and_natural_order():
    """Two leaves of some 100 bytes, then one; an empty one waits for nobody."""
    start = {f"w{i}": np.ones(25 + i, np.float32) for i in (10, 2, 1)}
    params = ps.to_host({**start, "none": np.ones((0, 3), np.float32)})
    seen = []

    def fn(params):
        seen.append(jax.tree.map(lambda x: jax.typeof(x).memory_space.name, params))
        return sum(jnp.sum(x) for x in params.values())

    loss = ps.from_host(fn, bucket_bytes=220)
    found = copies_in(jax.make_jaxpr(loss)(params))
    assert [copy.shape for copy in found] == [(0, 3), (26,), (27,), (35,)]
    assert [len(copy.after) for copy in found] == [0, 0, 0, 2]
    assert set(seen[0].values()) == {"Device"}


def test_an_order_from_the_schedule():
    """The order of a graph, from params on the device or their shapes."""
    graph = schedule.Graph.from_loss(helpers.loss_fn, helpers.problem(), BATCH)
    order = schedule.tac(graph)
    fn, args = gradient(order=order, bucket_bytes=1)
    found = copies_in(jax.make_jaxpr(fn)(*args))
    assert [copy.leaf for copy in found[: len(order)]] == order


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["scale"], r"order misses leaves \['layer1/b', 'layer1/w', 'layer2/w'\]"),
        ([*NAMES, "scale"], r"order repeats leaf \['scale'\]"),
        ([*NAMES, "x"], r"order has unknown leaf \['x'\]"),
    ],
)
def test_invalid_orders(order, message):
    fn, args = gradient(order=order)
    with pytest.raises(ValueError, match=message):
        fn(*args)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"bucket_bytes=0 must be a positive number"):
        ps.from_host(helpers.loss_fn, bucket_bytes=0)
    loss, params = ps.from_host(helpers.loss_fn), helpers.problem()
    half = {**ps.to_host(params), "scale": params["scale"]}
    message = r"leaf 'scale' lies in memory of the device: pass relaxjax.ps.to_host"
    with pytest.raises(ValueError, match=message):
        jax.jit(loss)(half, BATCH)


class Poor:
    """A device without host memory."""

    def addressable_memories(self):
        return []

    def __str__(self):
        return "poor:0"


def test_a_device_without_host_memory(monkeypatch):
    monkeypatch.setattr(_from_host.jax, "devices", lambda: [Poor()])
    message = r"ps.to_host: poor:0 has no memory of kind 'pinned_host', but \[\]"
    with pytest.raises(ValueError, match=message):
        ps.to_host({"w": np.ones(3)})
