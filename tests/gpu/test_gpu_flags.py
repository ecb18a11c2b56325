"""`relaxjax.plan.xla_flags` in the compiler for GPUs: what it joins, and what not."""

import json
import os
import subprocess
import sys

import jax
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.programs.ahead_of_time import compiled_text, shapes
from relaxjax import all_reduce, plan
from relaxjax.schedule import Link
from tests.gpu.programs import collectives, loss_fn, perceptron, train_text

LAYER = 4 * 2**20
MAPS = ("analytical_latency_estimator_options",)  # not taken by a single program


def options(bucket_bytes: int) -> dict[str, str | bool]:
    text = plan.xla_flags(plan.Network(workers=8, per_host=8), bucket_bytes)
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in text.split())
    return {k: v == "true" or v for k, v in flags.items() if not k.endswith(MAPS)}


def stock_text(mesh: jax.sharding.Mesh, bucket_bytes: int) -> str:
    """A step of `jax.jit`, whose gradients the compiler reduces."""
    whole, rows = (NamedSharding(mesh, spec) for spec in (P(), P("data")))
    tx = optax.sgd(0.1)

    def step(params, batch):
        grads = jax.grad(loss_fn)(params, batch)
        updates, _ = tx.update(grads, tx.init(params), params)
        return optax.apply_updates(params, updates)

    jitted = jax.jit(step, in_shardings=(whole, rows), out_shardings=whole)
    batch = jax.ShapeDtypeStruct((8 * 2048, 1024), "float32")
    return compiled_text(
        jitted, shapes(perceptron()), batch, options=options(bucket_bytes)
    )


@pytest.mark.parametrize("layers", [1, 3, 6])
def test_a_bucket_is_what_the_compiler_joins(mesh, layers):
    sent = collectives(stock_text(mesh, layers * LAYER))
    assert len(sent) == 6 // layers
    assert {kind for kind, _ in sent} == {"all-reduce"}


def test_our_buckets_stay_as_they_are(mesh):
    reducer = all_reduce("data", bucket_bytes=LAYER)
    plain = collectives(train_text(reducer, mesh))
    assert collectives(train_text(reducer, mesh, options=options(6 * LAYER))) == plain


# XLA reads its flags once in a process.
UNROLLED = """
import json
from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.programs.overlap import in_true_order
from benchmarks.programs.overlap_models import MODELS
from relaxjax.schedule import Device, Link, replay

link = Link(1e-5, 4.5e11)
training = MODELS["12-layer transformer"]()
text, unit = in_true_order(training, gpu_mesh(), 8 * 2**20)
run = replay(text(), device=Device(flops=4e14, bandwidth=3.35e12), link=link)
print(json.dumps([run.exposed / unit(link), run.share]))
"""


@pytest.mark.long
@pytest.mark.usefixtures("mesh")  # skips where nothing compiles for GPUs
def test_a_scheduler_that_knows_the_network_hides_the_transfers():
    """12 layers in buckets of 8 MiB; without the flags 0.54 of the backward pass."""
    network = plan.Network(workers=8, link=Link(1e-5, 4.5e11))
    done = subprocess.run(
        [sys.executable, "-c", UNROLLED],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": plan.xla_flags(network)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    units, share = json.loads(done.stdout.splitlines()[-1])
    assert units <= 0.8
    assert share >= 0.75
