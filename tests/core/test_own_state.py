"""The state of another transformation, and gradients of another kind of program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax._core.traced._marks import of_own_state, whole_method
from relaxjax.topology import ring

PARAMS = {"w": jnp.ones((4, 4)), "b": jnp.ones(4)}


class Mine(NamedTuple):
    kept: Any


def mine(fails: Exception | None = None) -> Any:
    def update(updates, state, params=None):
        del params
        if fails is not None:
            raise fails
        return updates, Mine(state.kept)

    return of_own_state("mine", lambda params: Mine(params), update)


METHODS = {
    "all_reduce": relaxjax.all_reduce("data"),
    "power_sgd": relaxjax.power_sgd("data", rank=1),
    "gossip": relaxjax.gossip("data", ring(2)),
    "local_sgd": relaxjax.local_sgd("data", 4),
    "diloco": relaxjax.diloco(optax.sgd(0.1), "data", 4),
    "eager_diloco": relaxjax.eager_diloco(optax.sgd(0.1), "data", 4),
    "streaming_diloco": relaxjax.streaming_diloco(optax.sgd(0.1), "data", 4),
    "noloco": relaxjax.noloco(optax.sgd(0.1), "data", ring(2), 4),
    "sparse_loco": relaxjax.sparse_loco(optax.sgd(0.1), "data"),
    "post_local_sgd": relaxjax.post_local_sgd(optax.sgd(0.1), "data", 4, 8),
    "asynchronous_diloco": relaxjax.asynchronous_diloco(
        optax.sgd(0.1), "data", [[0], [1]], optax.sgd(0.1)
    ),
    "decoupled_diloco": relaxjax.decoupled_diloco(
        optax.sgd(0.1), "data", sync_every=4, fragments=2
    ),
    "before_step": relaxjax.before_step(optax.scale(1.0), 2),
    "from_step": relaxjax.from_step(optax.scale(1.0), 2),
    "by_step": relaxjax.by_step({0: optax.scale(1.0), 2: optax.scale(2.0)}),
    "delay": relaxjax.delay(1),
    "bounded_staleness": relaxjax.bounded_staleness("data", [[0, 1]]),
    "dc_asgd": relaxjax.dc_asgd("data", [[0, 1]]),
    "accumulate": relaxjax.accumulate(relaxjax.all_reduce("data"), 2),
    "skip_nonfinite": relaxjax.skip_nonfinite(optax.scale(1.0), "data"),
}


def on_workers(fn: Any, *trees: Any) -> Any:
    both = jax.tree.map(lambda x: jnp.stack([x, x]), trees)
    return jax.vmap(fn, axis_name="data")(*both)


@pytest.mark.parametrize("name", METHODS)
def test_the_state_of_another_transformation_is_named(name):
    other = optax.adam(0.1).init(PARAMS)
    rule = rf"^{name}: update got a state of tuple, ScaleByAdamState, .*another.* of "
    with pytest.raises(TypeError, match=rule) as caught:
        on_workers(METHODS[name].update, PARAMS, other, PARAMS)
    assert caught.value.__cause__ is not None


def test_the_state_of_another_compressor_is_named():
    code = relaxjax.compression.quantize(8)
    coded = relaxjax.all_reduce("data", compressor=code)
    plain = on_workers(METHODS["all_reduce"].init, PARAMS)
    rule = "of AllReduceState, .* of AllReduceState, CompressedState: the"
    with pytest.raises(TypeError, match=rule):
        jax.vmap(coded.update, axis_name="data")(
            jax.tree.map(lambda x: jnp.stack([x, x]), PARAMS), plain
        )


@pytest.mark.parametrize("state", [{"kept": 1}, None, (1, 2)])
def test_what_a_checkpoint_without_classes_holds_is_named(state):
    rule = f"of {type(state).__name__}, which .* of Mine: the"
    with pytest.raises(TypeError, match=rule):
        mine().update(jnp.ones(2), state)


@pytest.mark.parametrize("kind", [AttributeError, TypeError, ValueError, KeyError])
def test_an_error_of_another_reason_stays(kind):
    error = kind("of another reason")
    with pytest.raises(kind, match="of another reason") as caught:
        mine(error).update(jnp.ones(2), Mine(jnp.ones(2)), jnp.ones(2))
    assert caught.value is error


def test_an_error_stays_where_init_fails_as_well():
    def init(params):
        raise ValueError(f"no init of {params}")

    def update(updates, state, params=None):
        raise KeyError("of another reason")

    with pytest.raises(KeyError, match="of another reason"):
        of_own_state("mine", init, update).update(jnp.ones(2), (), None)


def test_its_own_state_passes():
    out: Any
    out, state = mine().update(jnp.ones(2), mine().init(3))
    assert out.tolist() == [1, 1]
    assert state == Mine(3)


def test_params_are_what_init_is_asked_with():
    seen = []
    tx = of_own_state("mine", lambda params: seen.append(params), mine().update)
    with pytest.raises(TypeError, match="of NoneType"):
        tx.update(jnp.ones(2), (), jnp.ones(3))
    with pytest.raises(TypeError, match="of NoneType"):
        tx.update(jnp.ones(2), ())
    assert [x.shape for x in seen] == [(3,), (2,)]


def test_a_whole_method_is_the_chain_of_its_parts():
    parts = optax.scale(2.0), optax.trace(0.5)
    whole, chain = whole_method("mine", *parts), optax.chain(*parts)
    state = whole.init(jnp.ones(2))
    assert jax.tree.structure(state) == jax.tree.structure(chain.init(jnp.ones(2)))
    updates: Any
    updates, state = whole.update(jnp.ones(2), state, value=3)
    assert updates.tolist() == [2, 2]


def explicit() -> Any:
    kinds = (AxisType.Explicit,)
    return jax.make_mesh((2,), ("data",), axis_types=kinds, devices=jax.devices()[:2])


@pytest.mark.parametrize(
    "tx",
    [METHODS["diloco"], METHODS["local_sgd"], METHODS["gossip"]],
    ids=["whole", "half", "gossip"],
)
def test_unreduced_gradients_are_refused_by_methods_of_models(tx):
    def step(w, state, x):
        def loss(w):
            return jnp.mean((x @ w - 1) ** 2)

        grads = jax.grad(loss)(relaxjax.unreduced(w, "data"))
        return tx.update(grads, state, w)

    with jax.set_mesh(explicit()):
        w, x = jax.device_put((jnp.zeros(1), jnp.ones((4, 1))), (P(), P("data")))
        rule = "is unreduced, as .*relaxjax.data_parallel, .* relaxjax.all_reduce"
        with pytest.raises(ValueError, match=rule):
            jax.jit(step)(w, tx.init(w), x)
