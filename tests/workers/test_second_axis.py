"""Beside a second axis of the mesh, every copy of every leaf has the same bits."""

import inspect
import re
from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression as codes
from relaxjax import merges, topology
from tests import helpers, second_axis, test_contract
from tests.second_axis import SPECS, WORKERS

ROUND, SPARSE = codes.error_feedback(codes.quantize(4)), codes.top_k(0.1)
RING = topology.ring(WORKERS)
SGD = optax.sgd(0.1)


def before(name: str, **how: Any) -> Any:
    """A reducer, then the optimizer."""
    make = getattr(relaxjax, name)
    return lambda specs: optax.chain(make("data", **how, **specs), SGD)


def alone(name: str, *args: Any, **how: Any) -> Any:
    """A method in place of the optimizer."""
    return lambda specs: getattr(relaxjax, name)("data", *args, **how, **specs)


def after(name: str, *args: Any, **how: Any) -> Any:
    """The optimizer, then what brings models together."""
    make = getattr(relaxjax, name)
    return lambda specs: optax.chain(SGD, make("data", *args, **how, **specs))


def around(name: str, *args: Any, **how: Any) -> Any:
    make = getattr(relaxjax, name)
    return lambda specs: make(SGD, "data", *args, **how, **specs)


def reducer(**how: Any) -> Any:
    return before("all_reduce", **how)


GRADIENTS = {
    "all_reduce": reducer(),
    "all_reduce@ring": reducer(algorithm="ring"),
    "all_reduce+quantize4+ef14": reducer(compressor=ROUND),
    "all_reduce+sign": reducer(compressor=codes.sign()),
    "all_reduce+drive": reducer(compressor=codes.drive()),
    "all_reduce+top_k": reducer(compressor=SPARSE),
    "all_reduce+top_k+ef14, small buckets": reducer(
        compressor=codes.error_feedback(SPARSE), bucket_bytes=400
    ),
    "all_reduce+top_k+intersection": reducer(
        compressor=codes.intersection_feedback(SPARSE)
    ),
    "all_reduce+random_k": reducer(compressor=codes.random_k(0.2)),
    "all_reduce+qsgd": reducer(compressor=codes.qsgd(4)),
    "all_reduce+loco": reducer(compressor=codes.loco(codes.quantize(4))),
    "all_reduce+quantize4@ring": reducer(
        compressor=codes.quantize(4), algorithm="ring"
    ),
    "compress_matrices": before("compress_matrices", compressor=ROUND),
    "all_reduce, clipped": reducer(op=merges.clipped("all"), compressor=ROUND),
    "all_reduce, rda": reducer(op=merges.rda()),
    "all_reduce, median": reducer(op=merges.median(), compressor=codes.quantize(8)),
    "all_reduce, nearest": reducer(op=merges.nearest(1, merges.geometric_median())),
    "power_sgd": before("power_sgd", rank=1, min_compression=0),
    "power_sgd, 8 bits": before("power_sgd", rank=1, bits=8, min_compression=0),
    "acp_sgd": before("acp_sgd", rank=1, min_compression=0),
    "acp_sgd, 8 bits": before("acp_sgd", rank=1, bits=8, min_compression=0),
    "deep_gradient_compression": before("deep_gradient_compression", density=0.1),
    "deep_gradient_compression, clip": before(
        "deep_gradient_compression", density=0.1, clip=0.5
    ),
    "one_bit_adam": alone("one_bit_adam", 0.01, freeze_step=2),
    "one_bit_lamb": alone("one_bit_lamb", 0.01, freeze_step=2),
}
MODELS = {
    "zero_one_adam": alone("zero_one_adam", 0.01, freeze_step=2),
    "local_sgd": after("local_sgd", 2, compressor=codes.sign()),
    "post_local_sgd": around("post_local_sgd", 2, 1),
    "asynchronous_average": after(
        "asynchronous_average", 2, compressor=codes.quantize(4)
    ),
    "slow_momentum": after("slow_momentum", 2, compressor=ROUND),
    "diloco": around("diloco", 2, compressor=ROUND),
    "diloco, rda": around("diloco", 2, compressor=ROUND, merge="rda"),
    "diloco, clipped": around("diloco", 2, compressor=ROUND, merge=merges.clipped()),
    "diloco, median": around("diloco", 2, merge=merges.median()),
    "decoupled_diloco, geometric median": around(
        "decoupled_diloco",
        sync_every=2,
        fragments=2,
        merge=merges.geometric_median(),
    ),
    "eager_diloco": around("eager_diloco", 2, compressor=ROUND),
    "streaming_diloco": around("streaming_diloco", 2, fragments=2, compressor=ROUND),
    "decoupled_diloco": around(
        "decoupled_diloco", sync_every=2, fragments=2, compressor=ROUND
    ),
    "asynchronous_diloco": around("asynchronous_diloco", [[0]], optax.sgd(0.5)),
    "sparse_loco": around("sparse_loco", 2),
    "hierarchical_local_sgd": lambda specs: optax.chain(
        SGD, relaxjax.hierarchical_local_sgd({2: "data"}, **specs)
    ),
    "gossip": after("gossip", RING),
    "gossip, sign": after("gossip", RING, compressor=codes.sign()),
    "combine_then_adapt": after("combine_then_adapt", RING),
    "push_sum": after("push_sum", RING),
    "lossy_push_sum": after("lossy_push_sum", RING, loss=0.2),
    "exact_diffusion": after("exact_diffusion", topology.lazy(RING)),
    "quasi_global_momentum": after("quasi_global_momentum", RING),
    "atc_tracking": lambda specs: optax.chain(
        relaxjax.atc_tracking("data", RING, **specs), SGD
    ),
    "gradient_tracking": lambda specs: optax.chain(
        relaxjax.gradient_tracking("data", RING, **specs), SGD
    ),
    "moniqua": after("moniqua", RING, theta=9.0),
    "noloco": around("noloco", RING, 2),
    "deep_squeeze": after("deep_squeeze", RING, compressor=codes.sign()),
    "dcd_psgd": after("dcd_psgd", RING, compressor=codes.quantize(8)),
    "relay_sum": after("relay_sum", topology.chain(WORKERS)),
}
ALL = GRADIENTS | MODELS


def of_matrices(name: str, *args: Any, **how: Any) -> Any:
    """A momentum of matrices; vectors are averaged."""
    matrix = getattr(relaxjax, name)("data", *args, **how)
    return lambda specs: test_contract.momentum_of_matrices(matrix, SGD)


PLAIN = GRADIENTS | {
    "all_reduce+natural": reducer(compressor=codes.natural()),
    "all_reduce+tern_grad": reducer(compressor=codes.tern_grad()),
    "all_reduce+ef21": reducer(compressor=codes.ef21(SPARSE)),
    "arc_top_k, 8 bits": before("arc_top_k", density=0.5, rank=1, bits=8),
    "demo": before("demo", k=4, chunk=8),
    "dion": of_matrices("dion", 0.5),
    "dion, 8 bits": of_matrices("dion", 0.5, bits=8),
    "dion2, 8 bits": of_matrices("dion2", 0.5, bits=8),
    "parameter_server": lambda specs: relaxjax.parameter_server(
        SGD, "data", compressor=ROUND
    ),
}
"""Those that a plain `jit` takes, where types say how leaves are sharded."""
seeds = pytest.mark.parametrize("seed", range(4))


def test_every_transformation_that_takes_specs_has_a_row():
    rows = {re.split(r"[ ,@+]", name)[0] for name in ALL}
    takes = {
        name
        for name in test_contract.transformations()
        if "specs" in inspect.signature(getattr(relaxjax, name)).parameters
    }
    assert takes - rows == set()


def require_equal_copies(steps: Any, gradients: bool) -> None:
    """In params and state after each step, and of reducers between workers too."""
    for params, state in steps:
        assert second_axis.apart((params, state)) == {}
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))
        if gradients:
            assert relaxjax.spread(params) == 0


@pytest.mark.few(8)
@seeds
@pytest.mark.filterwarnings("ignore:init. all_reduce sends some of the numbers alone")
@pytest.mark.parametrize("name", ALL)
def test_with_specs_copies_stay_equal(name, seed):
    tx = ALL[name]({"specs": SPECS})
    require_equal_copies(second_axis.of_workers(tx, seed), name in GRADIENTS)


@pytest.mark.few(6)
@seeds
@pytest.mark.parametrize("name", PLAIN)
def test_in_a_plain_jit_copies_of_params_stay_equal(name, seed):
    for params, _ in second_axis.in_plain_jit(PLAIN[name]({}), seed):
        assert second_axis.apart(params) == {}
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", PLAIN)
def test_state_that_went_through_numpy_goes_on_to_the_bit(name, seed):
    """Its types say what is whole: of that, a checkpoint holds one copy."""
    tx = PLAIN[name]({})
    *_, (params, state) = second_axis.in_plain_jit(tx, seed)
    *_, (restored, _) = second_axis.in_plain_jit(tx, seed, restored=2)
    assert second_axis.apart(state) == {}
    helpers.assert_equal(restored, params)


NORMS = {
    "deep_gradient_compression, clip": before(
        "deep_gradient_compression", density=1.0, clip=0.5, masking=False
    ),
    "one_bit_lamb": alone("one_bit_lamb", 0.01, freeze_step=100),
}


@pytest.mark.long
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_of_whole_leaves_in_both_forms(name):
    """In a plain `jit` a device has a part, and takes the sum of all parts."""
    *_, (params, _) = second_axis.of_workers(NORMS[name]({"specs": SPECS}), 0)
    *_, (plain, _) = second_axis.in_plain_jit(NORMS[name]({}), 0)
    for key, x in params.items():
        np.testing.assert_allclose(plain[key], x[0], rtol=1e-4, atol=1e-5)


def test_adasum_of_parts_of_leaves_is_refused():
    tx = reducer(op="adasum")({})
    with pytest.raises(ValueError, match=r"leaf 'across' is sharded over \['model'\]"):
        next(second_axis.in_plain_jit(tx, 0))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    [
        "all_reduce@ring",
        "all_reduce+quantize4@ring",
        "all_reduce+top_k+ef14, small buckets",
        "acp_sgd",
    ],
)
def test_bytes_are_those_of_the_compiled_program(name):
    tx = ALL[name]({"specs": SPECS})
    mesh = second_axis.mesh_of(jax.sharding.AxisType.Auto)
    params, batches = second_axis.drawn(0)
    step = relaxjax.data_parallel(second_axis.step_of(tx), mesh, axis_name="data")
    placed = second_axis.placed(params, mesh)
    now = relaxjax.init(tx, placed, mesh, axis_name="data")
    sent = relaxjax.wire_bytes(tx, params, mesh, axis_name="data", steps=1)
    assert relaxjax.compiled_wire_bytes(step, *now, batches[0]) == sent
    if name == "all_reduce@ring":  # a bucket of parts, and one of whole leaves
        own = {k: x.size // (2 if tuple(SPECS[k]) else 1) for k, x in params.items()}
        cut = sum(own[k] for k in own if tuple(SPECS[k]))
        buckets = cut, sum(own.values()) - cut
        assert sent == sum(2 * 3 * -(-size // 4) * 4 for size in buckets)


def with_one_copy_changed(x: jax.Array, device: int) -> jax.Array:
    """The same array, but on one device a copy with 1 more in its last element."""
    parts = []
    for k, shard in enumerate(x.addressable_shards):
        part = np.array(shard.data)
        part.flat[-1] += k == device
        parts.append(jax.device_put(part, shard.device))
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)


@pytest.mark.parametrize("device", [1, 6])
def test_a_copy_along_another_axis_that_differs_is_seen(device):
    mesh = second_axis.mesh_of(jax.sharding.AxisType.Auto)
    params, _ = second_axis.drawn(0)
    tree = relaxjax.to_workers(second_axis.placed(params, mesh), mesh, axis_name="data")
    assert relaxjax.spread(tree) == 0
    assert relaxjax.replica_difference(tree) is None
    wrong = tree | {"whole": with_one_copy_changed(tree["whole"], device)}
    assert relaxjax.spread(wrong) == pytest.approx(1, rel=1e-6)
    found = relaxjax.replica_difference(wrong)
    assert found is not None
    worker, copy = divmod(device, second_axis.PARTS)
    assert (found.leaf, found.elements) == ("whole", 1)
    # Copies are compared with the first of worker 0.
    assert (found.worker, found.copy) == (worker, copy)
    assert str(found).count("along the mesh's other axes") == copy
