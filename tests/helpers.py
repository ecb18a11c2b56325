"""Meshes, a small training problem, and tree comparisons that the tests share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from relaxjax._core.traced._marks import station_of

Tree = Any


def mesh_of(n: int, name: str = "data") -> jax.sharding.Mesh:
    """The first `n` emulated devices."""
    return jax.sharding.Mesh(np.asarray(jax.devices()[:n]), (name,))


def problem(seed: int = 0, dtype: Any = np.float32) -> Tree:
    """Params of a two-layer network: odd sizes, nesting, a 0-d leaf."""
    rng = np.random.default_rng(seed)
    return {
        "layer1": {
            "w": rng.normal(size=(5, 7)).astype(dtype) / 3,
            "b": rng.normal(size=7).astype(dtype) / 3,
        },
        "layer2": {"w": rng.normal(size=(7, 3)).astype(dtype) / 3},
        "scale": np.asarray(1.5, dtype),
    }


def batches(steps: int, rows: int, seed: int = 1) -> list[Tree]:
    rng = np.random.default_rng(seed)
    return [
        {
            "x": rng.normal(size=(rows, 5)).astype(np.float32),
            "y": rng.normal(size=(rows, 3)).astype(np.float32),
        }
        for _ in range(steps)
    ]


def loss_fn(params: Tree, batch: Tree) -> jax.Array:
    hidden = jnp.tanh(batch["x"] @ params["layer1"]["w"] + params["layer1"]["b"])
    error = params["scale"] * hidden @ params["layer2"]["w"] - batch["y"]
    return jnp.mean(error**2)


def train_step_of(tx: optax.GradientTransformation, **extra: Any):
    """A step as for one device."""
    update = optax.with_extra_args_support(tx).update

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = update(grads, opt_state, params, **extra)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    return train_step


def step_of(gradient, tx: optax.GradientTransformation):
    """A step from a gradient, without its loss."""

    def train_step(params, opt_state, batch):
        updates, opt_state = tx.update(gradient(params, batch), opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    return train_step


def history(tx, gradient, start: Tree, data, mesh, **how: Any) -> list[Tree]:
    """Params and state after each step, stacked, on the host.

    `gradient` is a worker's own, of its params and its part of the batch.
    """
    step = relaxjax.data_parallel(step_of(gradient, tx), mesh, **how)
    state = relaxjax.init(tx, start, mesh)
    found = []
    for batch in data:
        *state, _ = step(*state, batch)
        found.append(host(state))
    return found


def targets_of(n: int, size: int = 5) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, size))


def pulled(tx, targets: np.ndarray, mesh, steps: int = 20) -> list[Tree]:
    """Params and state after each step of vectors that start at 0.

    Each worker is pulled to its own target: its gradient is x - target.
    """
    data = [targets.astype(np.float32)] * steps
    start = jnp.zeros(targets.shape[1])
    return history(tx, lambda x, target: x - target[0], start, data, mesh, donate=True)


def train(tx, mesh, data, *, params=None, axis_name=None) -> tuple[Tree, Tree, list]:
    """Trains over the workers of a mesh; returns stacked params, state and losses."""
    params = problem() if params is None else params
    params, opt_state = relaxjax.init(tx, params, mesh, axis_name=axis_name)
    step = relaxjax.data_parallel(train_step_of(tx), mesh, axis_name=axis_name)
    losses = []
    for batch in data:
        params, opt_state, metrics = step(params, opt_state, batch)
        losses.append(float(metrics["loss"]))
    return params, opt_state, losses


def train_alone(tx, data, *, params=None) -> tuple[Tree, Tree]:
    """The same on one device, without relaxjax."""
    params = jax.tree.map(jnp.asarray, problem() if params is None else params)
    opt_state = tx.init(params)
    step = jax.jit(train_step_of(tx))
    for batch in data:
        params, opt_state, _ = step(params, opt_state, batch)
    return params, opt_state


def optimized_hlo(lowered: jax.stages.Lowered) -> str:
    """Text of the compiled program."""
    text = lowered.compile().as_text()
    assert text is not None
    return text


def psum_groups_of(jaxpr: Any) -> int:
    """Number of different keys that keep psums of a program apart."""
    return len(
        {str(e.ctx.xla_metadata) for e in jaxpr.eqns if e.primitive.name == "psum"}
    )


def stations_of(tx: Any, n: int = 2) -> set[tuple[str, str, tuple[str, ...]]]:
    """Name, side and axes of what a traced update over "data" says it is."""
    x = jnp.ones(3)

    def update(x):
        return tx.update(x, tx.init(x), x)[0]

    jaxpr = jax.make_jaxpr(update, axis_env=[("data", n)])(x)
    found = {station_of(str(e.source_info.name_stack)) for e in jaxpr.eqns}
    return {(m.name, m.side, m.axes) for m in found if m}


def kinds(tree: Tree) -> Tree:
    """Shape and dtype of each leaf."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


MIXED = [("float32", "bfloat16"), ("float32", "float16"), ("bfloat16", "float32")]
MIXED += [("float64", "float32"), ("float32", "float64")]
"""Dtypes of params and of their gradients that differ."""


def traced_step(
    tx: Any, n: int, params_dtype: Any, gradients_dtype: Any
) -> tuple[Tree, Tree, Tree]:
    """Shapes of the first state, of the next one, and of the updates, for n workers."""
    start = problem() | {"wide": np.zeros((16, 12))}

    def shapes(dtype: Any) -> Tree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((n, *x.shape), dtype), start)

    with jax.enable_x64("float64" in (params_dtype, gradients_dtype)):
        params = shapes(params_dtype)
        state = jax.eval_shape(jax.vmap(tx.init, axis_name="data"), params)
        update = jax.vmap(tx.update, axis_name="data")
        out, after = jax.eval_shape(update, shapes(gradients_dtype), state, params)
    return state, after, out


def host(tree: Tree) -> Tree:
    return jax.tree.map(np.asarray, tree)


def assert_equal(a: Tree, b: Tree) -> None:
    """Bitwise."""
    jax.tree.map(np.testing.assert_array_equal, host(a), host(b))


def assert_no_shared_buffer(tree: Tree) -> None:
    """Else a step that takes over their memory is given one buffer twice."""
    buffers = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(tree)]
    assert len(set(buffers)) == len(buffers)


def assert_close(a: Tree, b: Tree, tolerance: float = 1e-5) -> None:
    """Normwise, leaf by leaf: ||a - b|| <= tolerance ||b||."""

    def close(x, y):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        x, y = (np.asarray(z, np.complex128).ravel() for z in (x, y))
        error, norm = np.linalg.norm(x - y), np.linalg.norm(y)
        assert error <= tolerance * max(norm, 1e-30), f"{error} > {tolerance} * {norm}"

    jax.tree.map(close, host(a), host(b))


def assert_sends(tx: Any, params: Tree, stated: int) -> None:
    """What each of two workers sends in a step, traced and compiled; alone, nothing."""
    assert relaxjax.wire_bytes(tx, params, relaxjax.emulate(2)) == stated
    assert relaxjax.wire_bytes(tx, params, relaxjax.emulate(1)) == 0
    state = relaxjax.init(tx, params, mesh_of(2))
    step = relaxjax.data_parallel(step_of(lambda p, b: p, tx), mesh_of(2))
    assert relaxjax.compiled_wire_bytes(step, *state, np.zeros(2)) == stated
