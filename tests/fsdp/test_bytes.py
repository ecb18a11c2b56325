"""What the compiled programs send: the formula, to the byte; what is alive in them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import relaxjax
from relaxjax import compression, fsdp
from tests import compiled_text
from tests.fsdp.forms import TWO, first_state, mesh_of_two
from tests.helpers import mesh_of

as_users_compile = compiled_text.as_users_compile
EIGHT = compression.quantize(8, block_size=2048)
FOUR = compression.quantize(4)
METHODS = {
    "plain": {},
    "again": {"reshard_after_forward": True},
    "qwZ": {"weights": EIGHT},
    "qgZ": {"gradients": FOUR},
    "hpZ": {"secondary": "device"},
    "all": {"weights": EIGHT, "gradients": FOUR, "secondary": "device"},
    "difference": {
        "weights": compression.quantize(4, block_size=2048),
        "gradients": compression.error_feedback(FOUR),
        "difference": True,
    },
}
METHODS["sdp4bit"] = fsdp.sdp4bit(TWO)
ONE_LEVEL = {k: v for k, v in METHODS.items() if not {"secondary", "across"} & v.keys()}
CASES = [("one level", k) for k in ONE_LEVEL] + [("2 x 4", k) for k in METHODS]
LAYERS, WIDTH = 3, 33
PARAMS = {"w": (WIDTH, WIDTH), "v": (WIDTH,)}


def layer(params, x):
    return jnp.tanh(x @ params["w"] + params["v"])


def one_layer():
    return {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in PARAMS.items()}


def compiled(mesh, choices, layers=LAYERS, *, ahead=False):
    """A step of a scan over layers, each gathered as it is used, or a layer ahead."""
    gathered = fsdp.gathered(layer, mesh.axis_names, **choices)
    tx = optax.sgd(0.1)

    def loss(shards, state, batch):
        if ahead:
            kept = state if gathered.choices.stateful else None
            return jnp.sum(fsdp.scan_layers(gathered, shards, batch, state=kept) ** 2)

        def turn(x, sliced):
            p, kept = sliced
            state = kept if gathered.choices.stateful else None
            return gathered(p, x, state=state), ()

        return jnp.sum(jax.lax.scan(turn, batch, (shards, state))[0] ** 2)

    def step(shards, opt_state, owed, batch):
        grads, owed = jax.grad(loss, argnums=(0, 1))(shards, owed, batch)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, owed, {}

    start = {k: np.ones((layers, *shape), np.float32) for k, shape in PARAMS.items()}
    state = first_state(tx, gathered, start, mesh, layers=("w", "v"))
    run = relaxjax.data_parallel(step, mesh)
    return gathered, run, (*state, np.ones((8, WIDTH), np.float32))


@pytest.mark.few(3)
@pytest.mark.parametrize(("levels", "method"), CASES)
def test_the_program_sends_what_the_formula_says(levels, method):
    mesh = mesh_of(8) if levels == "one level" else mesh_of_two()
    loss, step, args = compiled(mesh, METHODS[method])
    expected = LAYERS * fsdp.sent_bytes(loss, one_layer(), mesh).total
    assert relaxjax.compiled_wire_bytes(step, *args) == expected


AHEAD = [case for case in CASES if case[1] in ("again", "hpZ", "all", "difference")]


@pytest.mark.few(2)
@pytest.mark.parametrize(("levels", "method"), AHEAD)
def test_gathers_a_layer_ahead_send_no_more(levels, method):
    """Of four layers: on CPU a loop of one turn is none, and its gathers merge."""
    mesh = mesh_of(8) if levels == "one level" else mesh_of_two()
    loss, step, args = compiled(mesh, METHODS[method], 4, ahead=True)
    expected = 4 * fsdp.sent_bytes(loss, one_layer(), mesh).total
    assert relaxjax.compiled_wire_bytes(step, *args) == expected


@pytest.mark.long
def test_a_layer_ahead_two_layers_are_alive():
    """More layers keep no more whole weights."""
    sizes = []
    for layers in (3, 9):
        how = {"layers": layers, "ahead": True}
        _, step, args = compiled(mesh_of(8), METHODS["again"], **how)
        sizes.append(temporary(step.lower(*args)))
    assert (sizes[1] - sizes[0]) / 6 < WIDTH * WIDTH * 4 / 2


def across(choices, d=2**22):
    """Bytes over the slow links for d weights on 4 hosts of 8 devices, of a step."""
    mesh = relaxjax.emulate({"host": 4, "device": 8})
    loss = fsdp.gathered(layer, ("host", "device"), **choices)
    leaf = jax.ShapeDtypeStruct((d,), jnp.float32)
    return fsdp.sent_bytes(loss, leaf, mesh).by_axis["host"]


def test_bytes_over_the_slow_links():
    """Against ZeRO-3 and ZeRO-1 in 16 bits, scales counted."""
    half = compression.cast("bfloat16")
    both = {"weights": half, "gradients": half}
    zero_3 = across(both | {"reshard_after_forward": True})
    zero_1 = across(both)
    assert zero_3 / across(METHODS["all"]) >= 3.8
    for name in ("difference", "sdp4bit"):
        assert zero_3 / across(METHODS[name]) >= 5.5
        assert zero_1 / across(METHODS[name]) >= 3.7


def test_gathered_weights_of_one_layer_are_alive_at_a_time():
    """Memory grows with layers by what is kept of each, and not by its weights."""
    size = WIDTH * WIDTH * 4
    _, step, args = compiled(mesh_of(8), METHODS["plain"])
    _, again, _ = compiled(mesh_of(8), METHODS["again"])
    kept, lean = (temporary(x.lower(*args)) for x in (step, again))
    assert kept - lean >= (LAYERS - 1) * size


def temporary(lowered):
    memory = lowered.compile().memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


@pytest.mark.parametrize("layers", [(), ("blocks",)], ids=["leaves", "layers"])
def test_what_islands_send_of_their_slices(layers):
    """A sum over two islands, once in five steps, of each worker's slices."""
    mesh = relaxjax.emulate({"island": 2, "data": 4})
    params = {"w": jnp.ones((7, 3)), "blocks": jnp.ones((6, 5))}
    tx = relaxjax.diloco(optax.sgd(0.1), "island", sync_every=5)
    shards, _ = fsdp.init(tx, params, mesh, over="data", layers=layers)
    w, blocks = -(-21 // 4), 6 * -(-5 // 4) if layers else -(-30 // 4)
    once = 2 * 4 * (-(-w // 2) + -(-blocks // 2))
    sent = relaxjax.wire_bytes(tx, shards, mesh, steps=5)
    assert sent == once
    found = relaxjax.explain(tx, shards, mesh)
    assert (found.period, found.sends) == (5, {4: once})
    own = jax.tree.map(lambda x: x[0], shards)
    assert relaxjax.wire_bytes(tx, own, mesh, steps=5) == once
    assert relaxjax.wire_bytes(optax.adam(0.1), shards, mesh) == 0


def test_slices_inside_the_wrappers_of_a_library_are_found():
    """flax.nnx passes attributes of a value on, and is no slice itself."""
    mesh = relaxjax.emulate({"island": 2, "data": 2})
    params = nnx.State({"w": nnx.Param(jnp.arange(12.0))})
    tx = relaxjax.diloco(optax.sgd(0.1), "island", sync_every=1)
    shards, _ = fsdp.init(tx, params, mesh, over="data")
    assert relaxjax.wire_bytes(tx, shards, mesh) == 2 * 4 * 3
    whole = relaxjax.consensus(shards)
    assert jax.tree.structure(whole) == jax.tree.structure(params)
    np.testing.assert_array_equal(jax.tree.leaves(whole)[0], np.arange(12.0))
