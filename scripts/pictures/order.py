"""The timeline of `orders.md`: a step of a perceptron in the best order."""

from pathlib import Path

import jax
import jax.numpy as jnp

from relaxjax.schedule import (
    Cluster,
    Device,
    Graph,
    Link,
    Timeline,
    analytic,
    best,
    ordered,
    simulate,
)

SOURCES = (Path(__file__),)
LINK = Link(latency=20e-6, bandwidth=12.5e9)
DEVICE = Device(flops=50e12, bandwidth=1e12)
LAYERS = ("embed", "layer0", "layer1", "layer2", "layer3", "head")


def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """That of a perceptron."""
    for name in LAYERS:
        x = jnp.tanh(x @ params[name])
    return jnp.mean(x**2)


def timeline() -> Timeline:
    """One worker and one server, at 100 Gbit/s."""
    wide = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    batch = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)
    params = dict.fromkeys(LAYERS, wide)
    graph = Graph.from_loss(loss, params, batch, oracle=analytic(DEVICE), link=LINK)
    return simulate(graph, ordered("best", best(graph)), Cluster(link=LINK))
