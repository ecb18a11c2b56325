"""What the compiled programs send, in which order, and what a worker keeps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, ps
from relaxjax.ps._compiled_order import order_in
from tests import compiled_text as programs
from tests import helpers
from tests.helpers import mesh_of
from tests.ps.forms import FORMS, pulled_step, served_step

as_users_compile = programs.as_users_compile
NAMES = ["layer1/b", "layer1/w", "layer2/w", "scale"]
ORDERS = {
    "layer": ["layer1/w", "layer1/b", "scale", "layer2/w"],
    "reversed": ["layer2/w", "scale", "layer1/b", "layer1/w"],
    "mixed": ["scale", "layer1/w", "layer2/w", "layer1/b"],
}
BATCH = helpers.batches(1, rows=24)[0]
forms = pytest.mark.parametrize("form", FORMS)


def large(width: int = 64):
    """Six leaves of one size, so that slices are exact."""
    return {f"w{i}": np.zeros((width, width), np.float32) for i in range(6)}


@pytest.mark.few(2)
@forms
@pytest.mark.parametrize("servers", [None, 2, 4])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_transfers_run_in_the_order_asked_for(form, servers, order):
    step, state = FORMS[form](
        optax.adam(1e-2),
        mesh_of(8),
        helpers.problem(),
        order=order,
        servers=servers,
        bucket_bytes=1,
    )
    found = ps.compiled_order(step, *state, BATCH)
    assert list(found.pulls) == order
    assert list(found.pushes) == order[::-1]


@forms
def test_natural_order_by_default(form):
    start = {f"layer{i}": np.ones((4, 4), np.float32) for i in (10, 2, 1)}

    if form == "pulled":
        tx = optax.sgd(0.1)
        state = ps.init(tx, start, mesh_of(4))
        value = ps.pulled(apart, "data", bucket_bytes=1)
    else:
        value = apart
        tx = relaxjax.parameter_server(optax.sgd(0.1), "data", bucket_bytes=1)
        state = relaxjax.init(tx, start, mesh_of(4))

    def train_step(params, opt_state, batch):
        grads = jax.grad(value)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    step = relaxjax.data_parallel(train_step, mesh_of(4))
    found = ps.compiled_order(step, *state, BATCH)
    assert found.pulls == ("layer1", "layer2", "layer10")
    assert found.pushes == found.pulls[::-1]


@pytest.mark.few(2)
@forms
def test_each_transfer_waits_for_the_one_before(form):
    """Each needs the last, so that no compiler may turn them round."""
    step, state = FORMS[form](
        optax.adam(1e-2), mesh_of(8), helpers.problem(), bucket_bytes=1
    )
    module = programs.parse(helpers.optimized_hlo(step.lower(*state, BATCH)))
    body = module.computations[module.entry or ""]
    transfers = [i for i in body if programs.is_collective(i)]
    assert len(transfers) == 8
    for earlier, later in itertools.pairwise(transfers):
        assert earlier in programs.needs(body, later)


@pytest.mark.long
@forms
def test_codes_travel_in_order_too(form):
    if form == "pulled":
        pytest.skip("codes are of the transformation")
    step, state = served_step(
        optax.adam(1e-2),
        mesh_of(8),
        helpers.problem(),
        order=ORDERS["mixed"],
        compressor=compression.sign(),
        bucket_bytes=1,
    )
    found = ps.compiled_order(step, *state, BATCH)
    assert list(found.pulls) == ORDERS["mixed"]
    assert list(found.pushes) == ORDERS["mixed"][::-1]


@pytest.mark.few(2)
@pytest.mark.parametrize("servers", [1, 2, 4, 8])
@forms
def test_bytes(form, servers):
    """With any k, pushes and pulls are those of an all-reduce; traced and compiled."""
    small = {f"v{i}": np.zeros((8, 8), np.float32) for i in range(2)}
    start = {**large(), **small}
    expected = 2 * 7 * sum(x.nbytes for x in start.values()) // 8
    if form == "served":
        tx = relaxjax.parameter_server(optax.sgd(0.1), "data", servers=servers)
        assert relaxjax.wire_bytes(tx, start, mesh_of(8)) == expected
    step, state = sent_by(form, servers, start)
    assert relaxjax.compiled_wire_bytes(step, *state, BATCH) == expected


def apart(params, batch):
    return sum(jnp.sum((x - batch["x"].mean()) ** 2) for x in params.values())


def sent_by(form, servers, start):
    if form == "pulled":
        tx, value = optax.sgd(0.1), ps.pulled(apart, "data")
        state = ps.init(tx, start, mesh_of(8), servers=servers)
    else:
        tx = relaxjax.parameter_server(optax.sgd(0.1), "data", servers=servers)
        state, value = relaxjax.init(tx, start, mesh_of(8)), apart

    def train_step(params, opt_state, batch):
        grads = jax.grad(value)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    return relaxjax.data_parallel(train_step, mesh_of(8)), state


@pytest.mark.few(2)
@pytest.mark.parametrize("servers", [1, 2, 4])
def test_a_worker_keeps_one_part(servers):
    """Params and optimizer state at rest, of the compiled step's arguments."""
    start = large()
    size = sum(x.nbytes for x in start.values())

    tx = optax.adam(1e-2)
    state = ps.init(tx, start, mesh_of(4), servers=servers)

    def train_step(shards, opt_state, batch):
        grads = jax.grad(ps.pulled(apart, "data"))(shards, batch)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, {}

    step = relaxjax.data_parallel(train_step, mesh_of(4))
    memory = step.lower(*state, BATCH).compile().memory_analysis()
    assert memory is not None
    batch = BATCH["x"].nbytes // 4
    counter = 4
    assert memory.argument_size_in_bytes == 3 * size // servers + batch + counter
    # Within the step: the params whole, their gradients, and what is being sent.
    assert memory.temp_size_in_bytes <= 4 * size


def test_the_transformation_keeps_one_part_of_the_state():
    tx = relaxjax.parameter_server(optax.adam(1e-2), "data")
    _, state = relaxjax.init(tx, large(), mesh_of(4))
    held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(state))
    assert held == 2 * sum(x.nbytes for x in large().values()) // 4 + 8


def test_compiled_order_of_what_has_none():
    with pytest.raises(ValueError, match=r"compiled_order: .* no pull and no push"):
        ps.compiled_order(jax.jit(lambda x: x + 1), 1.0)
    with pytest.raises(TypeError, match=r"compiled_order: step=3 cannot be lowered"):
        ps.compiled_order(3)
    step, state = pulled_step(optax.sgd(0.1), relaxjax.emulate(2), helpers.problem())
    with pytest.raises(ValueError, match=r"compiled_order: .* emulated"):
        ps.compiled_order(step, *state, BATCH)


def test_a_transfer_is_in_the_order_of_its_collective():
    """And not of what is packed for it, which may stand before another's."""

    def named(name: str) -> str:
        return f'metadata={{op_name="jit(f)/pull {name};/of"}}'

    lines = [
        "HloModule pulls, is_scheduled=true, num_partitions=2",
        "ENTRY %main (x: f32[2]) -> f32[4] {",
        "  %x = f32[2] parameter(0)",
        f"  %p = f32[2] copy(%x), {named('b')}",
        f"  %a = f32[4] all-gather(%x), dimensions={{0}}, {named('a')}",
        f"  ROOT %b = f32[4] all-gather(%p), dimensions={{0}}, {named('b')}",
        "}",
    ]
    assert order_in("\n".join(lines)).pulls == ("a", "b")
