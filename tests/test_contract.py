"""The contract of every transformation: one row each, and all columns are inherited.

A row is made by `row(optimizer)`. Gradient-side rows leave every worker with the same
model; model-side rows may not.
"""

import functools
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import (
    accumulate,
    all_reduce,
    bounded_staleness,
    compression,
    deep_gradient_compression,
    delay,
    diloco,
    emulate,
    local_sgd,
    merges,
    one_bit_adam,
    one_bit_lamb,
    parameter_server,
    power_sgd,
    skip_nonfinite,
    slow_momentum,
    streaming_diloco,
    topology,
)
from tests import helpers
from tests.helpers import assert_close, assert_equal, mesh_of

Optimizer = optax.GradientTransformation


class Row(NamedTuple):
    make: Callable[[Optimizer], Optimizer]
    # Equal to one worker on the whole batch, with this optimizer around or after.
    alone: Callable[[Optimizer], Optimizer] = lambda optimizer: optimizer
    typed: bool = True  # type-checks under check_vma=True
    tolerance: float = 1e-5
    widens: bool = False  # what moves narrow params comes out in float32
    served: bool = False  # its state is made in the axis, its optimizer sees slices
    slow: bool = False  # differs from another row in its exchange alone
    single: Callable[[Optimizer], Optimizer] | None = None  # `make` for one worker
    alone_single: Callable[[Optimizer], Optimizer] | None = None  # `alone`, likewise
    apart: bool = False  # workers end apart even from equal models: see its own tests


def tracked(method: Callable[..., Any]) -> Row:
    """A row of gradients that are equal on all workers, and tracked by gossip."""

    def after(graph: Any) -> Any:
        return lambda opt: optax.chain(method("data", graph), opt)

    whole = after(topology.ring(WORKERS))
    return Row(
        lambda opt: optax.chain(all_reduce("data"), whole(opt)),
        typed=False,
        single=after(topology.ring(1)),
        slow=True,
    )


def of_equal_models(method: Callable[..., Any], topology_of: Any, **how: Any) -> Row:
    """A decentralized method after an all-reduce, which leaves it nothing to do."""

    def made(workers: int) -> Callable[[Optimizer], Optimizer]:
        def make(opt: Optimizer) -> Optimizer:
            after = method("data", topology_of(workers), **how)
            return optax.chain(all_reduce("data"), opt, after)

        return make

    return Row(made(WORKERS), typed=False, widens=True, single=made(1))


def noloco(axis_name: str, graph: topology.Topology, **how: Any) -> Optimizer:
    """Its outer half."""
    return relaxjax.noloco(optax.identity(), axis_name, graph, 2, momentum=0.0, **how)


def late_by_one(workers: int) -> Callable[[Optimizer], Optimizer]:
    """Every worker's gradient, by a table."""
    late = bounded_staleness("data", [[1] * workers])
    return lambda opt: optax.chain(late, all_reduce("data"), opt)


def one_step_late(opt: Optimizer) -> Optimizer:
    """A gradient is kept, and the one before it is used."""

    def init(params):
        return jax.tree.map(jnp.zeros_like, params)

    def update(updates, state, params=None):
        del params
        return state, updates

    return optax.chain(optax.GradientTransformation(init, update), opt)


def one_step_late_compensated(opt: Optimizer) -> Optimizer:
    """g + 0.04 g^2 (x - x_then), of the gradient and the params of the step before."""

    def init(params):
        return jax.tree.map(lambda x: (jnp.zeros_like(x), x), params)

    def update(updates, state, params=None):
        late = jax.tree.map(
            lambda _, x, s: s[0] + 0.04 * s[0] ** 2 * (x - s[1]), updates, params, state
        )
        return late, jax.tree.map(lambda g, x: (g, x), updates, params)

    return optax.chain(optax.GradientTransformation(init, update), opt)


def compensated(workers: int) -> Callable[[Optimizer], Optimizer]:
    """All workers a step late, the mean before it."""
    late = relaxjax.dc_asgd("data", [[1] * workers])
    return lambda opt: optax.chain(all_reduce("data"), late, opt)


def for_equal_workers(make: Callable[[Optimizer], Optimizer], n: int) -> Callable:
    """A transformation over an axis of workers that are all the same one."""

    def alone(opt: Optimizer) -> Optimizer:
        tx: Any = make(opt)
        same = {"axis_name": "data", "axis_size": n, "in_axes": None}

        def init(params):
            return unstack(jax.vmap(tx.init, **same)(params))

        def update(updates, state, params=None):
            return unstack(jax.vmap(tx.update, **same)(updates, state, params))

        return optax.GradientTransformation(init, update)

    return alone


def sparse_loco(opt: Optimizer) -> Optimizer:
    """Of equal models every worker sends the same payload."""
    return relaxjax.sparse_loco(optax.chain(all_reduce("data"), opt), "data", 2)


def acp_sgd(opt: Optimizer) -> Optimizer:
    """Linear: what comes out depends on the mean gradient alone."""
    low_rank = relaxjax.acp_sgd("data", rank=1, min_compression=0)
    return optax.chain(low_rank, opt)


def arc_top_k(opt: Optimizer) -> Optimizer:
    """Linear, as rows are chosen by the mean alone."""
    return optax.chain(relaxjax.arc_top_k("data", 0.5, rank=1, eta=0.5), opt)


def demo(opt: Optimizer) -> Optimizer:
    """Blocks of one element: the sign of the mean gradient."""
    return optax.chain(relaxjax.demo("data", 1, chunk=1), opt)


def momentum_of_matrices(reducer: Optimizer, opt: Optimizer) -> Optimizer:
    """Vectors are averaged, and go to the optimizer."""
    matrix = optax.chain(reducer, opt)
    vector = optax.chain(all_reduce("data"), opt)
    parts: dict[Any, Any] = {"matrix": matrix, "vector": vector}

    def labels(tree: Any) -> Any:
        return jax.tree.map(lambda x: "matrix" if np.ndim(x) > 1 else "vector", tree)

    return optax.partition(parts, labels)


def dion(opt: Optimizer) -> Optimizer:
    """Linear: what comes out depends on the mean gradient alone."""
    return momentum_of_matrices(relaxjax.dion("data", 0.5), opt)


def dion2(opt: Optimizer) -> Optimizer:
    """All of the rows, so that what comes out depends on the mean gradient alone."""
    return momentum_of_matrices(relaxjax.dion2("data", 1.0), opt)


def eager_diloco(opt: Optimizer) -> Optimizer:
    inner = optax.chain(all_reduce("data"), opt)
    return relaxjax.eager_diloco(inner, "data", 2, outer=optax.sgd(1.0))


def eager_outer_steps(opt: Optimizer, workers: int = 4) -> Optimizer:
    """Of equal models, each second step: a <- a - D / n - (1 - 1 / n) D_before."""

    def init(params):
        return 0, params, jax.tree.map(jnp.zeros_like, params)

    def update(updates, state, params=None):
        step, a, before = state
        d = jax.tree.map(lambda a, x, u: a - (x + u), a, params, updates)
        share = 1 / workers
        there = jax.tree.map(
            lambda a, d, b: a - share * d - (1 - share) * b, a, d, before
        )
        last = step % 2 == 1
        u, a, before = jax.tree.map(
            lambda now, later: jnp.where(last, now, later),
            (jax.tree.map(jnp.subtract, there, params), there, d),
            (updates, a, before),
        )
        return u, (step + 1, a, before)

    return optax.chain(opt, optax.GradientTransformation(init, update))


# Rows of equal models have nothing left to bring together.
pytestmark = pytest.mark.filterwarnings("ignore:init. all_reduce makes the gradients")
WORKERS = 4
STEPS = 3
ROWS: dict[str, Row] = {
    "all_reduce": Row(lambda opt: optax.chain(all_reduce("data"), opt)),
    "all_reduce, small groups": Row(
        lambda opt: optax.chain(all_reduce("data", bucket_bytes=64), opt), slow=True
    ),
    "all_reduce@ring": Row(
        lambda opt: optax.chain(all_reduce("data", algorithm="ring"), opt)
    ),
    "all_reduce@ring, small buckets": Row(
        lambda opt: optax.chain(
            all_reduce("data", algorithm="ring", bucket_bytes=64), opt
        ),
        slow=True,
    ),
    **{
        f"all_reduce@{algorithm}": Row(
            lambda opt, algorithm=algorithm: optax.chain(
                all_reduce("data", algorithm=algorithm), opt
            ),
            slow=True,
        )
        for algorithm in (
            "bidirectional_ring",
            "halving_doubling",
            "tree",
            "two_shot",
            "one_shot",
        )
    },
    "all_reduce, trimmed by none": Row(  # the mean, by rows of chunks
        lambda opt: optax.chain(all_reduce("data", op=merges.trimmed(0)), opt)
    ),
    "all_reduce, centered at a radius that never bites": Row(  # the mean, by distances
        lambda opt: optax.chain(all_reduce("data", op=merges.centered_clip(1e6)), opt),
        tolerance=1e-4,
        slow=True,
    ),
    "all_reduce+identity+ef14@two_shot": Row(
        lambda opt: optax.chain(
            all_reduce(
                "data",
                algorithm="two_shot",
                compressor=compression.error_feedback(compression.identity()),
            ),
            opt,
        ),
        typed=False,  # the residual varies; replicated state cannot
    ),
    "compress_matrices": Row(
        lambda opt: optax.chain(
            relaxjax.compress_matrices(
                "data",
                compression.error_feedback(compression.identity()),
                algorithm="two_shot",
            ),
            opt,
        ),
        typed=False,  # the residual varies
    ),
    "all_reduce+top_k+intersection@two_shot, all of it": Row(
        lambda opt: optax.chain(
            all_reduce(
                "data",
                algorithm="two_shot",
                compressor=compression.intersection_feedback(compression.top_k(1.0)),
            ),
            opt,
        ),
        typed=False,  # the residual varies
        slow=True,
    ),
    "all_reduce+random_k, all of them": Row(
        lambda opt: optax.chain(
            all_reduce("data", compressor=compression.random_k(1.0)), opt
        ),
        slow=True,
    ),
    "deep_gradient_compression, all of it": Row(
        lambda opt: optax.chain(
            deep_gradient_compression("data", density=1.0, masking=False), opt
        ),
        lambda opt: optax.chain(optax.trace(0.9), opt),
        typed=False,  # what waits varies; replicated state cannot
    ),
    "power_sgd, full rank": Row(
        lambda opt: optax.chain(power_sgd("data", rank=7, min_compression=0), opt),
        typed=False,  # the residual varies
        tolerance=1e-4,
    ),
    "acp_sgd, of the mean": Row(
        acp_sgd,
        for_equal_workers(acp_sgd, WORKERS),
        alone_single=for_equal_workers(acp_sgd, 1),
        typed=False,  # the residual varies
        tolerance=1e-4,
        slow=True,
    ),
    **{
        f"{make.__name__}, of the mean": Row(
            make,
            for_equal_workers(make, WORKERS),
            alone_single=for_equal_workers(make, 1),
            typed=False,  # the momentum varies
            tolerance=1e-3,
            slow=True,
        )
        for make in (arc_top_k, demo, dion, dion2)
    },
    "one_bit_adam, before its switch": Row(
        lambda opt: optax.chain(
            one_bit_adam("data", 0.01, freeze_step=100, weight_decay=0.1), opt
        ),
        lambda opt: optax.chain(optax.adamw(0.01, weight_decay=0.1), opt),
        typed=False,  # the residual varies
        tolerance=1e-4,
    ),
    "one_bit_lamb, before its switch": Row(
        lambda opt: optax.chain(one_bit_lamb("data", 0.01, freeze_step=100), opt),
        lambda opt: optax.chain(optax.lamb(0.01), opt),
        typed=False,  # the residual varies
        tolerance=1e-4,
        slow=True,
    ),
    "accumulate": Row(
        lambda opt: accumulate(optax.chain(all_reduce("data"), opt), every=2),
        lambda opt: accumulate(opt, every=2),
        typed=False,  # the sum of local gradients varies; replicated state cannot
    ),
    "skip_nonfinite": Row(
        lambda opt: skip_nonfinite(optax.chain(all_reduce("data"), opt), "data")
    ),
    "local_sgd, of equal models": Row(
        lambda opt: optax.chain(all_reduce("data"), opt, local_sgd("data", 2)),
        typed=False,  # the anchor may vary; replicated state cannot
        widens=True,
    ),
    "local_sgd under a schedule, of equal models": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, local_sgd("data", relaxjax.periods.table([1, 2]))
        ),
        typed=False,  # the anchor may vary; replicated state cannot
        widens=True,
    ),
    "local_sgd by a reducer that is given, of equal models": Row(
        lambda opt: optax.chain(
            all_reduce("data"),
            opt,
            local_sgd("data", 2, reducer=all_reduce("data", algorithm="two_shot")),
        ),
        typed=False,  # the anchor may vary; replicated state cannot
        widens=True,
    ),
    "asynchronous_average, of equal models": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, relaxjax.asynchronous_average("data", 2)
        ),
        typed=False,  # the anchor may vary; replicated state cannot
        widens=True,
        slow=True,
    ),
    "slow_momentum without it, of equal models": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, slow_momentum("data", 2, momentum=0.0)
        ),
        typed=False,  # as in local_sgd
        widens=True,
        slow=True,
    ),
    "diloco with outer steps of 1, of equal models": Row(
        lambda opt: diloco(
            optax.chain(all_reduce("data"), opt), "data", 2, outer=optax.sgd(1.0)
        ),
        typed=False,
        widens=True,
    ),
    **{
        f"diloco by {rule!r}, of equal models": Row(
            lambda opt, rule=rule: diloco(
                optax.chain(all_reduce("data"), opt),
                "data",
                2,
                outer=optax.sgd(1.0),
                merge=rule,
            ),
            typed=False,
            widens=True,
            slow=rule.name != "clipped",
        )
        for rule in (merges.clipped(), merges.rda(), merges.geometric_median())
    },
    "streaming_diloco with outer steps of 1, of equal models": Row(
        lambda opt: streaming_diloco(
            optax.chain(all_reduce("data"), opt), "data", 2, outer=optax.sgd(1.0)
        ),
        typed=False,
        widens=True,
        slow=True,
    ),
    "decoupled_diloco with outer steps of 1, of equal models": Row(
        lambda opt: relaxjax.decoupled_diloco(
            optax.chain(all_reduce("data"), opt),
            "data",
            sync_every=2,
            outer=optax.sgd(1.0),
        ),
        typed=False,
        widens=True,
    ),
    "decoupled_diloco in tables, of equal models": Row(
        lambda opt: relaxjax.decoupled_diloco(
            optax.chain(all_reduce("data"), opt),
            "data",
            sync_every=2,
            merge="mean",
            outer=optax.sgd(1.0),
            present=[[1] * WORKERS],
            tokens=[[8] * WORKERS],
        ),
        typed=False,
        widens=True,
        slow=True,
        single=lambda opt: relaxjax.decoupled_diloco(
            opt, "data", sync_every=2, outer=optax.sgd(1.0), tokens=[[8]]
        ),
    ),
    "asynchronous_diloco": Row(
        lambda opt: relaxjax.asynchronous_diloco(
            opt, "data", [[-1], [0], [3]], optax.sgd(0.5)
        ),
        typed=False,
        widens=True,
        apart=True,
        single=lambda opt: relaxjax.asynchronous_diloco(
            opt, "data", [[0]], optax.sgd(1.0)
        ),
    ),
    "delayed_nesterov, of mean updates": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, relaxjax.delayed_nesterov(-1.0, every=2)
        ),
        lambda opt: optax.chain(opt, relaxjax.delayed_nesterov(-1.0, every=2)),
        slow=True,
    ),
    "heloco, of mean updates": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, relaxjax.heloco(-1.0, weights=(0.5, 0.25))
        ),
        lambda opt: optax.chain(opt, relaxjax.heloco(-1.0, weights=(0.5, 0.25))),
        slow=True,
    ),
    "desynced, of equal models": Row(
        lambda opt: relaxjax.desynced(
            optax.chain(all_reduce("data"), opt), "data", periods={"params": 2}
        ),
        typed=False,  # the optimizer's state may vary; replicated state cannot
        widens=True,
    ),
    "sparta, of equal models": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, relaxjax.sparta("data", 0.25, delay=1)
        ),
        typed=False,  # what waits varies; replicated state cannot
        widens=True,
    ),
    "delay": Row(
        lambda opt: optax.chain(delay(1), all_reduce("data"), opt),
        one_step_late,
        typed=False,  # what waits varies; replicated state cannot
    ),
    "bounded_staleness, all alike": Row(
        late_by_one(WORKERS),
        one_step_late,
        typed=False,  # what is under way varies
        single=late_by_one(1),
        slow=True,
    ),
    "zero_one_adam, exact and in lock step": Row(
        lambda opt: optax.chain(  # last: it moves params from wherever they are
            all_reduce("data"),
            opt,
            relaxjax.zero_one_adam(
                "data",
                0.01,
                freeze_step=100,
                weight_decay=0.1,
                compressor=compression.identity(),
            ),
        ),
        lambda opt: optax.chain(opt, optax.adamw(0.01, weight_decay=0.1)),
        typed=False,  # momentum varies between synchronizations
        tolerance=1e-4,
        widens=True,
        slow=True,
    ),
    "eager_diloco with outer steps of 1, of equal models": Row(
        eager_diloco,
        eager_outer_steps,
        typed=False,
        widens=True,
        slow=True,
        alone_single=lambda opt: eager_outer_steps(opt, 1),
    ),
    "sparse_loco, of equal models": Row(
        sparse_loco,
        for_equal_workers(sparse_loco, WORKERS),
        typed=False,
        widens=True,
        slow=True,
        alone_single=for_equal_workers(sparse_loco, 1),
    ),
    "post_local_sgd, before its switch": Row(
        lambda opt: relaxjax.post_local_sgd(opt, "data", 2, 100),
        typed=False,
        widens=True,
        slow=True,
    ),
    "hierarchical_local_sgd, of equal models": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, relaxjax.hierarchical_local_sgd({2: "data"})
        ),
        typed=False,
        widens=True,
        slow=True,
    ),
    "before_step, all the time": Row(
        lambda opt: optax.chain(relaxjax.before_step(all_reduce("data"), 100), opt),
        typed=False,  # what comes after its step varies
        slow=True,
    ),
    "by_step, of one and the same": Row(
        lambda opt: optax.chain(
            relaxjax.by_step({0: all_reduce("data"), 2: all_reduce("data")}), opt
        ),
    ),
    "from_step, before its step": Row(
        lambda opt: optax.chain(
            all_reduce("data"), opt, relaxjax.from_step(local_sgd("data", 2), 100)
        ),
        typed=False,
        widens=True,
        slow=True,
    ),
    "dc_asgd, all alike": Row(
        compensated(WORKERS),
        one_step_late_compensated,
        typed=False,  # what is under way varies
        single=compensated(1),
        slow=True,
    ),
    "gradient_tracking, of equal gradients": tracked(relaxjax.gradient_tracking),
    "atc_tracking, of equal gradients": tracked(relaxjax.atc_tracking),
    "relay_sum": of_equal_models(relaxjax.relay_sum, topology.chain)._replace(
        slow=True, apart=True
    ),
    "participation, of all": Row(
        lambda opt: relaxjax.participation(
            optax.chain(all_reduce("data"), opt), "data", 1.0
        ),
        slow=True,
    ),
    "parameter_server": Row(
        lambda opt: parameter_server(opt, "data"), typed=False, served=True
    ),
    "parameter_server, two servers": Row(
        lambda opt: parameter_server(opt, "data", servers=2, bucket_bytes=64),
        typed=False,
        served=True,
        single=lambda opt: parameter_server(opt, "data"),
        slow=True,
    ),
    "gossip, of equal models": of_equal_models(
        relaxjax.gossip, topology.one_peer_exponential
    ),
    "gossip under a schedule, of equal models": of_equal_models(
        relaxjax.gossip,
        topology.one_peer_exponential,
        every=relaxjax.periods.table([1, 2]),
    ),
    "gossip in signs, of equal models": of_equal_models(
        relaxjax.gossip, topology.ring, compressor=compression.sign()
    ),
    **{
        f"{method.__name__}, of equal models": of_equal_models(
            method, topology_of, **how
        )._replace(slow=True)
        for method, topology_of, how in [
            (relaxjax.combine_then_adapt, topology.ring, {}),
            (relaxjax.push_sum, topology.ring, {}),
            (relaxjax.lossy_push_sum, topology.ring, {"loss": 0.0}),
            (relaxjax.exact_diffusion, lambda n: topology.lazy(topology.ring(n)), {}),
            (relaxjax.quasi_global_momentum, topology.ring, {"momentum": 0.0}),
            (relaxjax.moniqua, topology.ring, {"theta": 1.0}),
            (noloco, topology.ring, {"outer_learning_rate": 1.0}),
            (
                relaxjax.deep_squeeze,
                topology.ring,
                {"compressor": compression.sign()},
            ),
            (
                relaxjax.dcd_psgd,
                topology.ring,
                {"compressor": compression.identity()},
            ),
        ]
    },
}
OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(1e-2),
}

rows = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=name, marks=[pytest.mark.slow] if row.slow else [])
        for name, row in ROWS.items()
    ],
)


def data(steps: int = STEPS):
    return helpers.batches(steps, rows=3 * WORKERS)


EXAMPLES, PRESENT = np.array([1, 2, 5, 3]), np.array([1, 1, 0, 1])  # of each worker
BY_PRESENCE_ALONE = {  # merge rules that ignore weights
    "all_reduce, trimmed by none",
    "all_reduce, centered at a radius that never bites",
}
WITHOUT_WEIGHTS = {
    "asynchronous_average",
    "atc_tracking",
    "bounded_staleness",
    "combine_then_adapt",
    "dc_asgd",
    "dcd_psgd",
    "decoupled_diloco",
    "deep_squeeze",
    "delay",
    "eager_diloco",
    "exact_diffusion",
    "gossip",
    "gradient_tracking",
    "hierarchical_local_sgd",
    "lossy_push_sum",
    "moniqua",
    "noloco",
    "push_sum",
    "quasi_global_momentum",
    "streaming_diloco",
}


def weighted(tx: Any) -> Optimizer:
    """Each worker counts as its number of examples, and the third is never there."""
    inner = optax.with_extra_args_support(
        relaxjax.participation(tx, "data", PRESENT[None])
    )

    def update(updates, state, params=None):
        w = jnp.asarray(EXAMPLES)[jax.lax.axis_index("data")]
        return inner.update(updates, state, params, weight=w)

    return optax.GradientTransformation(inner.init, update)


def examples_of(counts: Any) -> list[Any]:
    """The batches, with each worker's rows as many times as it counts."""

    def repeated(x):
        own = np.reshape(x, (WORKERS, -1, *x.shape[1:]))
        return np.concatenate([own[i] for i, n in enumerate(counts) for _ in range(n)])

    return [jax.tree.map(repeated, batch) for batch in data()]


def unstack(tree):
    return jax.tree.map(lambda x: x[0], tree)


WITHOUT_A_ROW = {
    "local": "the identity with a mark, which init reads: tests/workers/test_init.py"
}


def method_of(name: str) -> str:
    """A row's."""
    return re.split(r"[ ,@+]", name)[0]


def transformations() -> set[str]:
    """Public functions that return one, by their annotations."""
    names = [name for name in relaxjax.__all__ if name[0].islower()]
    found = {name: getattr(relaxjax, name) for name in names}
    return {
        name
        for name, function in found.items()
        if "GradientTransformation"
        in str(getattr(function, "__annotations__", {}).get("return"))
    }


def test_every_public_transformation_has_a_row():
    rows_of = {method_of(name) for name in ROWS}
    assert len(transformations()) > 35
    assert transformations() - rows_of == set(WITHOUT_A_ROW)


together = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=name, marks=[pytest.mark.slow] if row.slow else [])
        for name, row in ROWS.items()
        if not row.apart
    ],
)


@pytest.mark.few(2)
@together
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_workers_equal_one_worker_on_the_whole_batch(row, optimizer):
    params, _, _ = helpers.train(row.make(optimizer), mesh_of(WORKERS), data())
    expected, _ = helpers.train_alone(row.alone(optimizer), data())
    assert relaxjax.spread(params) == 0.0
    assert_close(unstack(params), expected, row.tolerance)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", [x for x, row in ROWS.items() if not row.apart])
def test_weights_are_numbers_of_examples_and_who_is_absent_does_not_exist(name):
    row = ROWS[name]
    tx = weighted(row.make(OPTIMIZERS["adam"]))
    if method_of(name) in WITHOUT_WEIGHTS:
        with pytest.raises(ValueError, match="weight= has no meaning here"):
            helpers.train(tx, emulate(WORKERS), data())
        return
    params, _, _ = helpers.train(tx, emulate(WORKERS), data())
    counts = PRESENT * (1 if name in BY_PRESENCE_ALONE else EXAMPLES)
    expected, _ = helpers.train_alone(
        row.alone(OPTIMIZERS["adam"]), examples_of(counts)
    )
    for worker in np.flatnonzero(PRESENT):
        model = jax.tree.map(lambda x, i=worker: x[i], params)
        assert_close(model, expected, row.tolerance)


@pytest.mark.few(1)
@together
def test_one_worker_is_the_identity(row):
    optimizer = OPTIMIZERS["adam"]
    expected, _ = helpers.train_alone(
        (row.alone_single or row.alone)(optimizer), data()
    )
    for mesh in (mesh_of(1), emulate(1)):
        tx = (row.single or row.make)(optimizer)
        params, _, _ = helpers.train(tx, mesh, data())
        assert_close(unstack(params), expected, 1e-6)


def own_shard_map(tx, mesh, check_vma: bool):
    """A user's own shard_map, all state with a leading worker axis."""
    step = helpers.train_step_of(tx)

    def local(params, opt_state, batch):
        params, opt_state = jax.tree.map(lambda x: x[0], (params, opt_state))
        params, opt_state, _ = step(params, opt_state, batch)
        return jax.tree.map(lambda x: x[None], (params, opt_state))

    params, opt_state = relaxjax.init(tx, helpers.problem(), mesh)
    specs = relaxjax.state_specs((params, opt_state), "data")
    return (
        params,
        opt_state,
        jax.jit(
            jax.shard_map(
                local,
                mesh=mesh,
                in_specs=(*specs, P("data")),
                out_specs=specs,
                check_vma=check_vma,
            )
        ),
    )


def own_typed_shard_map(tx, mesh):
    """A user's own shard_map with replicated state, which the types must prove."""

    def replicated(params, opt_state, batch):
        grads = jax.grad(helpers.loss_fn)(relaxjax.to_local(params, "data"), batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = jax.tree.map(jnp.asarray, helpers.problem())
    return (
        params,
        tx.init(params),
        jax.jit(
            jax.shard_map(
                replicated, mesh=mesh, in_specs=(P(), P(), P("data")), out_specs=P()
            )
        ),
    )


def own_pmap(tx):
    step = helpers.train_step_of(tx)
    devices = jax.devices()[:WORKERS]
    params = jax.tree.map(
        lambda x: np.broadcast_to(x, (WORKERS, *x.shape)), helpers.problem()
    )
    opt_state = jax.pmap(tx.init, axis_name="data", devices=devices)(params)

    mapped = jax.pmap(step, axis_name="data", devices=devices)

    def one_step(params, opt_state, batch):
        batch = jax.tree.map(lambda x: x.reshape(WORKERS, -1, *x.shape[1:]), batch)
        return mapped(params, opt_state, batch)[:2]

    return params, opt_state, one_step


def own_vmap(tx):
    step = helpers.train_step_of(tx)
    params = jax.tree.map(
        lambda x: np.broadcast_to(x, (WORKERS, *x.shape)), helpers.problem()
    )
    opt_state = jax.vmap(tx.init, axis_name="data")(params)

    def one_step(params, opt_state, batch):
        batch = jax.tree.map(lambda x: x.reshape(WORKERS, -1, *x.shape[1:]), batch)
        return jax.vmap(step, axis_name="data")(params, opt_state, batch)[:2]

    return params, opt_state, jax.jit(one_step)


@pytest.mark.slow
@rows
def test_same_under_every_mapping(row):
    tx: Any = row.make(OPTIMIZERS["adam"])
    expected, _, _ = helpers.train(tx, mesh_of(WORKERS), data())
    expected = unstack(expected)
    emulated, _, _ = helpers.train(tx, emulate(WORKERS), data())
    assert_close(unstack(emulated), expected, 1e-6)
    mappings = {
        "shard_map": own_shard_map(tx, mesh_of(WORKERS), check_vma=False),
        "typed shard_map": own_shard_map(tx, mesh_of(WORKERS), check_vma=True),
        "pmap": own_pmap(tx),
        "vmap": own_vmap(tx),
    }
    for params, opt_state, step in mappings.values():
        for batch in data():
            params, opt_state = step(params, opt_state, batch)
        assert_close(unstack(params), expected, 1e-6)
    if row.typed:
        params, opt_state, step = own_typed_shard_map(tx, mesh_of(WORKERS))
        for batch in data():
            params, opt_state = step(params, opt_state, batch)
        assert_close(params, expected, 1e-6)


def test_ring_is_bitwise_the_same_under_every_mapping():
    tx: Any = optax.chain(all_reduce("data", algorithm="ring"), optax.sgd(0.1))
    grads = [helpers.problem(seed) for seed in range(WORKERS)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *grads)

    def update(g):
        return tx.update(g, tx.init(g))[0]

    def local(g):
        return jax.tree.map(lambda x: x[None], update(unstack(g)))

    by_vmap = jax.jit(jax.vmap(update, axis_name="data"))(stacked)
    by_pmap = jax.pmap(update, axis_name="data", devices=jax.devices()[:WORKERS])(
        stacked
    )
    for check_vma in (False, True):
        by_shard_map = jax.jit(
            jax.shard_map(
                local,
                mesh=mesh_of(WORKERS),
                in_specs=P("data"),
                out_specs=P("data"),
                check_vma=check_vma,
            )
        )(stacked)
        assert_equal(by_vmap, by_shard_map)
    assert_equal(by_vmap, by_pmap)


@pytest.mark.few(2)
@rows
@pytest.mark.parametrize("where", ["mesh", "emulated"])
def test_state_is_stable_and_compiled_once(row, where):
    mesh = mesh_of(WORKERS) if where == "mesh" else emulate(WORKERS)
    tx: Any = row.make(OPTIMIZERS["adam"])
    traces = []
    inner = helpers.train_step_of(tx)

    def counted(params, opt_state, batch):
        traces.append(1)
        return inner(params, opt_state, batch)

    params, opt_state = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(counted, mesh)
    kinds = [
        jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding), (params, opt_state))
    ]
    for batch in data():
        params, opt_state, _ = step(params, opt_state, batch)
        kinds.append(
            jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding), (params, opt_state))
        )
    assert len(traces) == 1
    assert all(kind == kinds[0] for kind in kinds)


@pytest.mark.few(1)
@rows
def test_accepts_unknown_extra_args(row):
    tx: Any = optax.with_extra_args_support(row.make(optax.sgd(0.1)))
    grads = jax.tree.map(lambda x: np.stack([x] * WORKERS), helpers.problem())

    def update(g):
        return tx.update(g, tx.init(g), g, surely_unknown=1)[0]

    out = jax.vmap(update, axis_name="data")(grads)
    assert jax.tree.structure(out) == jax.tree.structure(grads)


def first_state(row, tx) -> Callable[[Any], Any]:
    """From params, as for one device; in the axis where it must be."""
    if not row.served:
        return tx.init
    return jax.vmap(tx.init, axis_name="data", axis_size=WORKERS, in_axes=None)


@rows
def test_state_that_needs_the_axis_says_so(row):
    tx: Any = row.make(OPTIMIZERS["adam"])
    if row.served:
        with pytest.raises(NameError, match=r"relaxjax\.init"):
            tx.init(helpers.problem())
    else:
        assert jax.tree.leaves(tx.init(jax.tree.map(jnp.asarray, helpers.problem())))


@rows
def test_init_from_shapes_alone(row):
    tx: Any = row.make(OPTIMIZERS["adam"])
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), helpers.problem()
    )
    assert jax.tree.leaves(jax.eval_shape(first_state(row, tx), shapes))


@pytest.mark.few(3)
@rows
def test_params_and_state_may_be_donated_together(row):
    params = jax.tree.map(jnp.asarray, helpers.problem())
    state = first_state(row, row.make(OPTIMIZERS["adam"]))(params)
    helpers.assert_no_shared_buffer((params, state))


@pytest.mark.few(1)
@rows
def test_jit_equals_no_jit(row):
    tx: Any = row.make(OPTIMIZERS["adam"])
    grads = jax.tree.map(
        lambda *x: np.stack(x), *[helpers.problem(s) for s in range(WORKERS)]
    )

    def two_steps(g):
        state = tx.init(g)
        _, state = tx.update(g, state, g)
        return tx.update(g, state, g)

    mapped = jax.vmap(two_steps, axis_name="data")
    # A compiled program rounds otherwise, which dion2's orthogonal columns enlarge.
    assert_close(mapped(grads), jax.jit(mapped)(grads), 1e-5)


@pytest.mark.few(2)
@rows
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, jnp.float8_e4m3fn])
def test_dtypes_stay(row, dtype):
    tx: Any = row.make(optax.identity())
    grads = jax.tree.map(
        lambda x: np.stack([x] * WORKERS).astype(dtype), helpers.problem()
    )
    update = jax.vmap(lambda g: tx.update(g, tx.init(g), g), axis_name="data")
    out, _ = jax.jit(update)(grads)
    expected = np.float32 if row.widens else dtype
    assert {x.dtype for x in jax.tree.leaves(out)} == {np.dtype(expected)}


every_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)  # traced only


@pytest.mark.few(10)
@every_row
@pytest.mark.parametrize(("params", "gradients"), helpers.MIXED)
def test_state_keeps_its_types_under_other_gradients(row, params, gradients):
    """Else the carry of a `lax.scan` changes, and a second program is compiled."""
    tx: Any = row.make(optax.identity())
    state, after, out = helpers.traced_step(tx, WORKERS, params, gradients)
    assert helpers.kinds(after) == helpers.kinds(state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    dtypes = {x.dtype.name for x in jax.tree.leaves(out)}
    assert dtypes <= {gradients, params, "float32" if row.widens else params}


@pytest.mark.few(3)
@rows
def test_a_scan_of_steps_inside_equals_single_steps(row):
    """Phases and rounds go on in it."""
    tx, mesh, batches = row.make(OPTIMIZERS["adam"]), emulate(WORKERS), data(4)
    one = helpers.train_step_of(tx)

    def two(params, state, batch):
        each = jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), batch)
        now, _ = jax.lax.scan(
            lambda now, b: (one(*now, b)[:2], None), (params, state), each
        )
        return *now, {}

    def joined(*xs):
        parts = [x.reshape(WORKERS, -1, *x.shape[1:]) for x in xs]
        return np.concatenate(parts, 1).reshape(-1, *xs[0].shape[1:])

    single = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(one, mesh)
    for batch in batches:
        single = step(*single, batch)[:2]
    scanned = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(two, mesh)
    for pair in (batches[:2], batches[2:]):
        scanned = step(*scanned, jax.tree.map(joined, *pair))[:2]
    assert_close(scanned, single, 1e-5)


@pytest.mark.few(1)
@rows
def test_a_sweep_of_rates_by_vmap_is_each_run_alone(row):
    """Workers inside, rates outside: counters, keys and phases of all runs go on."""
    grads = jax.tree.map(
        lambda *x: np.stack(x), *[helpers.problem(s) for s in range(WORKERS)]
    )

    def run(rate, grads):
        tx: Any = row.make(optax.adam(rate))

        def local(grads):
            def step(now, t):
                updates, state = tx.update(
                    jax.tree.map(lambda x: x * jnp.cos(t), grads), *now[::-1]
                )
                return (optax.apply_updates(now[0], updates), state), None

            start = jax.tree.map(jnp.asarray, helpers.problem(9))
            return jax.lax.scan(step, (start, tx.init(start)), jnp.arange(5.0))[0][0]

        return jax.vmap(local, axis_name="data")(grads)

    rates = jnp.array([0.01, 0.1])
    swept = jax.jit(jax.vmap(run, in_axes=(0, None)))(rates, grads)
    for i, rate in enumerate(rates):
        alone = jax.jit(run)(rate, grads)
        assert_close(jax.tree.map(lambda x, i=i: x[i], swept), alone, 1e-5)


STRICT = {
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "dtypes": lambda: jax.numpy_dtype_promotion("strict"),
    "x64": lambda: jax.enable_x64(True),
}
BY_OPTAX = {  # optax.tree.bias_correction does not pass, and so no Adam does
    ("dtypes", "one_bit_adam, before its switch"),
    ("dtypes", "one_bit_lamb, before its switch"),
    ("dtypes", "zero_one_adam, exact and in lock step"),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("flag", STRICT)
@pytest.mark.parametrize("name", ROWS)
def test_traces_under_strict_flags(name, flag):
    """And in 64 bits the state keeps its types, and updates those of the params."""
    dtype = "float64" if flag == "x64" else "float32"
    with STRICT[flag]():
        step = functools.partial(
            helpers.traced_step,
            ROWS[name].make(optax.identity()),
            WORKERS,
            dtype,
            dtype,
        )
        if (flag, name) in BY_OPTAX:
            with pytest.raises(ValueError, match="no available implicit dtype"):
                step()
            return
        state, after, out = step()
    assert helpers.kinds(after) == helpers.kinds(state)
    assert {x.dtype.name for x in jax.tree.leaves(out)} <= {dtype, "float32"}


@pytest.mark.few(3)
@rows
def test_no_key_draws_twice(row):
    """As JAX follows keys, also through the loops of `when`."""
    mesh, tx = emulate(WORKERS), row.make(optax.sgd(0.1))
    with jax.debug_key_reuse(True):
        params, state = relaxjax.init(tx, helpers.problem(), mesh)
        step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
        for batch in data(2):
            params, state, _ = step(params, state, batch)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


@pytest.mark.few(2)
@rows
def test_maps_over_params_like_parts_of_the_state(row):
    tx: Any = row.make(OPTIMIZERS["adam"])
    state = first_state(row, tx)(jax.tree.map(jnp.asarray, helpers.problem()))
    doubled = optax.tree.map_params(tx, lambda x: x + 1, state)
    assert jax.tree.structure(doubled) == jax.tree.structure(state)
    momenta = optax.tree.get_all_with_path(doubled, "mu")
    assert momenta
    assert all((np.asarray(mu["scale"]) == 1.0).all() for _, mu in momenta)


def in_two_parts(make: Callable[[Optimizer], Optimizer]) -> Optimizer:
    return optax.partition(
        {"a": make(optax.sgd(0.1)), "b": make(optax.sgd(0.1))},
        {"layer1": {"w": "a", "b": "b"}, "layer2": {"w": "b"}, "scale": "a"},
    )


def in_one_part_of_two(make: Callable[[Optimizer], Optimizer]) -> Optimizer:
    """No leaf has the other label."""
    parts: dict[Any, Optimizer] = {"all": make(optax.sgd(0.1))}
    parts["none"] = make(optax.sgd(0.1))
    return optax.partition(parts, jax.tree.map(lambda _: "all", helpers.problem()))


WRAPPED = {
    "inject_hyperparams": lambda row: row.make(
        optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)
    ),
    "MultiSteps": lambda row: optax.MultiSteps(
        row.make(optax.sgd(0.1)), 2
    ).gradient_transformation(),
    "masked": lambda row: optax.masked(
        row.make(optax.sgd(0.1)), jax.tree.map(lambda _: True, helpers.problem())
    ),
    "partition": lambda row: in_two_parts(row.make),
    "partition, a label of no leaf": lambda row: in_one_part_of_two(row.make),
    "apply_if_finite": lambda row: row.make(optax.apply_if_finite(optax.sgd(0.1), 3)),
    "clip_by_global_norm": lambda row: row.make(
        optax.chain(optax.clip_by_global_norm(100.0), optax.sgd(0.1))
    ),
}
MIXES_ELEMENTS = ("apply_if_finite", "clip_by_global_norm")
ALONE = {
    "MultiSteps": lambda row: optax.MultiSteps(
        row.alone(optax.sgd(0.1)), 2
    ).gradient_transformation(),
    "partition": lambda row: in_two_parts(row.alone),
}


USUAL = [name for name, row in ROWS.items() if not row.slow]


def seldom(name: str, wrapper: str) -> bool:
    """Of a row, two wrappers are usual, and others of the next one."""
    if name not in USUAL:
        return True
    turn = USUAL.index(name) + list(WRAPPED).index(wrapper)
    return bool(turn % 3) and not ROWS[name].served


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("row", "wrapper"),
    [
        pytest.param(
            row,
            wrapper,
            id=f"{wrapper}-{name}",
            marks=[pytest.mark.slow] if seldom(name, wrapper) else [],
        )
        for name, row in ROWS.items()
        for wrapper in WRAPPED
        if not row.apart
    ],
)
def test_chains_with_optax(row, wrapper):
    tx: Any = WRAPPED[wrapper](row)
    if row.served and wrapper in MIXES_ELEMENTS:
        with pytest.raises(ValueError, match="an element depends on others"):
            helpers.train(tx, mesh_of(WORKERS), data())
        return
    alone = ALONE.get(wrapper, lambda row: row.alone(optax.sgd(0.1)))(row)
    expected, _ = helpers.train_alone(alone, data())
    keeps_nan = wrapper == "MultiSteps" and row is ROWS["skip_nonfinite"]
    with pytest.warns(UserWarning, match="keeps a NaN") if keeps_nan else nullcontext():
        params, _, _ = helpers.train(tx, mesh_of(WORKERS), data())
    assert relaxjax.spread(params) == 0.0
    assert_close(unstack(params), expected, 1e-5)


@pytest.mark.few(8)
@rows
def test_optax_finds_and_sets_a_hyperparameter_in_the_state(row):
    """`optax.tree.set` walks tuples by itself, and rebuilds the state by its tree."""
    tx = row.make(optax.inject_hyperparams(optax.sgd)(learning_rate=0.1))
    _, state = relaxjax.init(tx, helpers.problem(), emulate(WORKERS))
    new = optax.tree.set(state, learning_rate=jnp.full(WORKERS, 0.5))
    found = [rate for _, rate in optax.tree.get_all_with_path(new, "learning_rate")]
    assert found
    for rate in found:
        np.testing.assert_array_equal(rate, np.full(WORKERS, 0.5))
    assert jax.tree.structure(new) == jax.tree.structure(state)
