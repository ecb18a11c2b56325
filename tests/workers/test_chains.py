"""`init` looks at what stands where in a chain, and on which side of the optimizer."""

import linecache
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, compression, emulate, plan, topology
from tests import helpers
from tests.test_contract import ROWS

WORKERS = 4
PARAMS = {"w": jnp.ones((6, 4)), "b": jnp.ones(4)}
GRAPH = topology.ring(WORKERS)
ADAM = optax.adam(1e-3)
PARTLY = optax.partition(
    {"shared": all_reduce("data"), "own": optax.identity()}, {"w": "shared", "b": "own"}
)
REDUCED = optax.chain(all_reduce("data"), ADAM)


def too_large(updates: Any, step: Any, params: Any) -> Any:
    return optax.skip_large_updates(updates, step, params, 30.0)


def skipping(when: Any) -> Any:
    return lambda tx: optax.MultiSteps(
        tx, 2, should_skip_update_fn=when
    ).gradient_transformation()


def if_finite_before(tx: Any) -> Any:
    """Takes a step where the gradient of the step before was finite."""

    def update(updates, state, params=None):
        before, inner = state
        taken = jax.lax.cond(
            before,
            lambda u: tx.update(u, inner, params),
            lambda u: (u, inner),
            updates,
        )
        return taken[0], (jnp.isfinite(updates["b"]).all(), taken[1])

    return optax.GradientTransformation(
        lambda params: (jnp.asarray(True), tx.init(params)), update
    )


def matrices_by(tx: Any) -> Any:
    labels = {"w": "matrix", "b": "vector"}
    return optax.partition({"matrix": tx, "vector": all_reduce("data")}, labels)


DGC = relaxjax.deep_gradient_compression("data", density=0.25)
SPARSE = compression.momentum_correction(compression.top_k(0.25))
MOMENTA: dict[str, Any] = {  # reducers with a momentum in them, and optimizers
    "deep_gradient_compression": DGC,
    "arc_top_k": relaxjax.arc_top_k("data", density=0.25),
    "demo": relaxjax.demo("data"),
    "dion": matrices_by(relaxjax.dion("data")),
    "dion2": matrices_by(relaxjax.dion2("data")),
    "all_reduce": all_reduce("data", compressor=SPARSE),
    "one_bit_adam": relaxjax.one_bit_adam("data", 1e-3, freeze_step=10),
    "one_bit_lamb": relaxjax.one_bit_lamb("data", 1e-3, freeze_step=10),
    "parameter_server": relaxjax.parameter_server(ADAM, "data", servers=2),
}
REMEMBERS: dict[str, Any] = {
    "adam": ADAM,
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adafactor": optax.adafactor(0.1),
    "muon": optax.contrib.muon(0.1),
    "lion, twice late": optax.chain(optax.lion(1e-3), relaxjax.delay(2)),
}
STATELESS: dict[str, Any] = {  # or nothing that an optimizer keeps
    "sgd": optax.sgd(0.1),
    "a schedule": optax.sgd(optax.linear_schedule(0.1, 0.0, 10)),
    "clipping": optax.chain(
        optax.clip_by_global_norm(1.0), optax.adaptive_grad_clip(1)
    ),
    "decay": optax.add_decayed_weights(1e-3),
    "noise": optax.add_noise(0.1, 0.5, jax.random.key(0)),
    "two steps late": relaxjax.delay(2),
    "sums": optax.apply_every(2),
}

DECIDES_ALONE: dict[str, Any] = {
    "apply_if_finite": lambda tx: optax.apply_if_finite(tx, 5),
    "MultiSteps(skip_not_finite)": skipping(optax.skip_not_finite),
    "MultiSteps(skip_large_updates)": skipping(too_large),
}
WRONG: dict[str, tuple[Any, str]] = {
    "gossip before adam": (
        optax.chain(relaxjax.gossip("data", GRAPH), ADAM),
        "gossip stands before",
    ),
    "gossip before sgd": (
        optax.chain(relaxjax.gossip("data", GRAPH), optax.sgd(0.1)),
        "gossip stands before",
    ),
    "coded gossip before adam": (
        optax.chain(
            relaxjax.gossip("data", GRAPH, compressor=compression.sign()), ADAM
        ),
        "gossip stands before",
    ),
    "local_sgd before adam": (
        optax.chain(relaxjax.local_sgd("data", 4), ADAM),
        "local_sgd stands before",
    ),
    "slow_momentum before sgd": (
        optax.chain(relaxjax.slow_momentum("data", 4), optax.sgd(0.1)),
        "slow_momentum stands before",
    ),
    "diloco before a scale": (
        optax.chain(relaxjax.diloco(ADAM, "data", 4), optax.scale(0.5)),
        "diloco stands before",
    ),
    "two reducers": (
        optax.chain(all_reduce("data"), all_reduce("data"), ADAM),
        "all_reduce gets updates that all_reduce has reduced",
    ),
    "power_sgd after all_reduce": (
        optax.chain(
            all_reduce("data"), relaxjax.power_sgd("data", min_compression=0), ADAM
        ),
        "power_sgd gets updates that all_reduce has reduced",
    ),
    "all_reduce in signs after clipping after all_reduce": (
        optax.chain(
            all_reduce("data"),
            optax.clip_by_global_norm(1.0),
            all_reduce("data", compressor=compression.sign()),
            ADAM,
        ),
        "all_reduce gets updates that all_reduce has reduced",
    ),
    **{
        f"{name} behind {first}": (optax.chain(optimizer, tx), f"{name} stands behind")
        for first, optimizer in REMEMBERS.items()
        for name, tx in MOMENTA.items()
        if first == "adam" or tx is DGC
    },
    "deep_gradient_compression behind adam, before local_sgd": (
        optax.chain(ADAM, DGC, relaxjax.local_sgd("data", 2)),
        "deep_gradient_compression stands behind",
    ),
    "a forgotten leaf": (optax.chain(PARTLY, ADAM), r"updates of \['b'\]"),
    "a forgotten leaf, mixed in by a norm": (
        optax.chain(PARTLY, optax.clip_by_global_norm(1.0), ADAM),
        r"updates of \['b'\]",
    ),
    "a forgotten leaf, a step late": (
        optax.chain(PARTLY, relaxjax.delay(1), ADAM),
        r"updates of \['b'\]",
    ),
    **{
        f"{name} around {inside}": (wrap(tx), f"whether {inside} communicates")
        for name, wrap in DECIDES_ALONE.items()
        for inside, tx in {
            "all_reduce": optax.chain(all_reduce("data"), ADAM),
            "local_sgd": optax.chain(ADAM, relaxjax.local_sgd("data", 2)),
            "psum": optax.chain(
                optax.stateless(lambda u, _: jax.lax.pmean(u, "data")), ADAM
            ),
        }.items()
    },
    "apply_if_finite around accumulate": (
        optax.apply_if_finite(relaxjax.accumulate(REDUCED, 2), 5),
        "decided by a worker's own gradient",
    ),
    "a decision that the state remembers": (
        if_finite_before(REDUCED),
        "whether all_reduce communicates",
    ),
}
RIGHT: dict[str, Any] = {
    "all_reduce": optax.chain(all_reduce("data"), ADAM),
    "clipped before": optax.chain(
        optax.clip_by_global_norm(1.0), all_reduce("data"), ADAM
    ),
    "clipped after": optax.chain(
        all_reduce("data"), optax.clip_by_global_norm(1.0), ADAM
    ),
    "gossip after": optax.chain(ADAM, relaxjax.gossip("data", GRAPH)),
    **{
        f"{name} behind the reducer": optax.chain(all_reduce("data"), wrap(ADAM))
        for name, wrap in DECIDES_ALONE.items()
    },
    "skipping": relaxjax.skip_nonfinite(optax.chain(all_reduce("data"), ADAM), "data"),
    "gossip, if finite": optax.chain(
        optax.apply_if_finite(ADAM, 3), relaxjax.gossip("data", GRAPH)
    ),
    **{name: tx for name, tx in MOMENTA.items()},
    **{
        f"deep_gradient_compression behind {name}": optax.chain(before, DGC)
        for name, before in STATELESS.items()
    },
    "momenta, accumulated": relaxjax.accumulate(optax.chain(DGC, optax.sgd(0.1)), 2),
    "momenta in MultiSteps": optax.MultiSteps(
        optax.chain(DGC, optax.sgd(0.1)), 2
    ).gradient_transformation(),
    "no momentum": optax.chain(
        ADAM, relaxjax.deep_gradient_compression("data", momentum=0.0)
    ),
    "codes behind adam": optax.chain(
        ADAM, all_reduce("data", compressor=compression.quantize(8))
    ),
    "accumulated": relaxjax.accumulate(
        optax.chain(ADAM, relaxjax.local_sgd("data", 2)), 3
    ),
    "MultiSteps": optax.MultiSteps(
        optax.chain(ADAM, relaxjax.local_sgd("data", 2)), 3
    ).gradient_transformation(),
    "delayed": optax.chain(relaxjax.delay(1), all_reduce("data"), ADAM),
    "masked": optax.chain(
        optax.partition(
            {
                "m": relaxjax.power_sgd("data", min_compression=0),
                "v": all_reduce("data"),
            },
            {"w": "m", "b": "v"},
        ),
        ADAM,
    ),
    "tracking": optax.chain(
        relaxjax.gradient_tracking("data", GRAPH),
        optax.sgd(0.1),
        relaxjax.gossip("data", GRAPH),
    ),
    "one's own": optax.chain(
        optax.stateless(lambda u, _: jax.lax.pmean(u, "data")), ADAM
    ),
    "local on purpose": optax.chain(
        optax.partition(
            {"shared": all_reduce("data"), "own": relaxjax.local()},
            {"w": "shared", "b": "own"},
        ),
        ADAM,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_chains_are_refused_by_name(name):
    tx, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        relaxjax.init(tx, PARAMS, emulate(WORKERS))


@pytest.mark.parametrize("name", RIGHT)
def test_right_chains_pass(name):
    relaxjax.init(RIGHT[name], PARAMS, emulate(WORKERS))


@pytest.mark.few(4)
@pytest.mark.filterwarnings("ignore:init. all_reduce makes the gradients")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_row_of_the_contract_passes(row):
    relaxjax.init(row.make(optax.adam(1e-2)), helpers.problem(), emulate(WORKERS))


def test_levels_of_a_mesh_may_be_reduced_one_after_the_other():
    mesh = emulate({"host": 2, "device": 2})
    tx = optax.chain(all_reduce("device"), all_reduce("host"), ADAM)
    relaxjax.init(tx, PARAMS, mesh)
    with pytest.raises(ValueError, match=r"synchronized over \['device'\] but not"):
        relaxjax.init(optax.chain(all_reduce("device"), ADAM), PARAMS, mesh)


def test_a_reducer_that_gradients_pass_by_is_warned_of():
    """Inside of SAM's adversary alone: its outer steps take each worker's own."""
    reduced = optax.chain(all_reduce("data"), optax.sgd(0.05))
    by = optax.contrib.sam(optax.sgd(0.05), reduced, sync_period=2)
    with pytest.warns(UserWarning, match="'data', and yet the updates of all leaves"):
        relaxjax.init(by, PARAMS, emulate(WORKERS))
    around = optax.chain(all_reduce("data"), optax.contrib.sam(ADAM, optax.sgd(0.05)))
    relaxjax.init(around, PARAMS, emulate(WORKERS))
    for every in (1, 2):
        relaxjax.init(relaxjax.accumulate(around, every), PARAMS, emulate(WORKERS))


def test_a_chain_without_any_reducer_is_warned_of():
    with pytest.warns(UserWarning, match="nothing in this transformation") as caught:
        relaxjax.init(ADAM, PARAMS, emulate(WORKERS))
    (warning,) = caught
    line = linecache.getline(warning.filename, warning.lineno)
    assert line.strip() == "relaxjax.init(ADAM, PARAMS, emulate(WORKERS))"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.init(ADAM, PARAMS, emulate(1))
        relaxjax.init(ADAM, PARAMS, emulate(WORKERS), reduced_in_step=True)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_integers_that_would_never_train_are_refused(row):
    """By every relaxation, before a step is taken."""
    shapes = jax.eval_shape(helpers.problem)
    stacked = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((WORKERS, *x.shape), x.dtype), shapes
    )
    stacked |= {"steps": jax.ShapeDtypeStruct((WORKERS,), jnp.int32)}
    init = jax.vmap(row.make(optax.identity()).init, axis_name="data")
    with pytest.raises(ValueError, match=r"\w+: leaf 'steps' is int32"):
        jax.eval_shape(init, stacked)


def test_what_is_no_compressor_and_no_model_is_named():
    name: Any = "sign"
    with pytest.raises(TypeError, match="error_feedback: compressor must be of type"):
        compression.error_feedback(name)
    with pytest.raises(TypeError, match=r"Model\.of_size\(1300000000, compute"):
        plan.Model(params=1.3e9, compute=0.1)


@pytest.mark.parametrize("present", [0, 0.0, [[0, 0], [0, 0]]])
def test_a_training_without_anybody(present):
    with pytest.raises(ValueError, match="nobody ever takes part"):
        relaxjax.participation(all_reduce("data"), "data", present)


@pytest.mark.parametrize("loss", [1, np.ones((2, 4, 4))])
def test_links_that_lose_everything(loss):
    with pytest.raises(ValueError, match="loses every message"):
        relaxjax.lossy_push_sum("data", GRAPH, loss)


def test_sums_of_columns_and_of_rows_are_named_as_what_they_are():
    keeps_rows = np.array([[0.5, 0.5], [0.25, 0.75]])
    for matrix, kind in ((keeps_rows, "column"), (keeps_rows.T, "row")):
        with pytest.raises(ValueError, match=rf"{kind} 0 of the matrix sums to 0\.75"):
            topology.from_matrix(matrix)
        graph = topology.Topology.of_matrices("mine", [matrix])
        with pytest.raises(ValueError, match=rf"'mine' .*a {kind} does not sum to 1"):
            relaxjax.gossip("data", graph)


APART = np.kron(np.eye(2), np.full((2, 2), 0.5))  # two pairs
SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    "matrix", [APART, SWAP, np.eye(3)], ids=["apart", "swap", "eye"]
)
def test_graphs_that_never_mix_are_warned_of(matrix):
    graph = topology.from_matrix(matrix)
    with pytest.warns(UserWarning, match="never come to one mean"):
        relaxjax.gossip("data", graph)
