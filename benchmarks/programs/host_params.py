"""Params in host memory, copied in different orders: measured, and predicted.

`relaxjax.ps.from_host` on whatever device JAX has. Throughput of an order is compared
with the mean of random orders, by rounds that every order takes part in. Predictions
are makespans of the loss's graph: its operations scaled to the seconds measured with
params on the device, its transfers at the rate of one copy of everything.

On a GPU run it with JAX_ENABLE_PGLE=true too: XLA knows from a profile alone what a
copy takes. On CPU host memory is the device's own, and nothing is copied.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import typer

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.programs.compiled_orders import MIB, ORDERS, named_orders
from benchmarks.programs.overlap_models import Workload, transformer
from benchmarks.report import RandomOrders, Result, Rounds, Run, Table, benchmark
from relaxjax.ps import from_host, to_host
from relaxjax.schedule import Graph, Link, makespan

TARGET = 1.2  # throughput of the best order over the mean of random ones, on a GPU
LATENCY = 1e-5  # seconds that a transfer costs by itself, in predictions
ON_DEVICE = "on the device"
_NO_GAIN = (
    "on CPU host memory is the device's own memory: nothing is copied, and no gain is "
    "to be expected"
)
MODES: Mapping[str, Callable[[Any], Any]] = {
    "inference": lambda loss: loss,
    "training": jax.value_and_grad,
}


class CopySetting(NamedTuple):
    """What is run, and where.

    Attributes:
      training: the model.
      params: its params, on the device.
      batch: its batch, on the device.
      link: the link between the memories.
      shared: whether the two memories are one.
    """

    training: Workload
    params: Any
    batch: Any
    link: Link
    shared: bool


@benchmark("host_params")
def host_params(
    run: Run,
    rounds: Rounds = 20,
    random_orders: RandomOrders = 20,
    bucket_mb: Annotated[float, typer.Option(min=0.001, help="MiB of a copy.")] = 2,
) -> Result:
    """Orders of copies from host memory, measured on the device at hand."""
    device, bucket_bytes = jax.devices()[0], int(bucket_mb * MIB)
    shared = device.platform == "cpu"
    training = _transformer(shared)
    params, batch = _arrays((training.params, training.batch))
    rate = _rate(params)
    setting = CopySetting(training, params, batch, Link(LATENCY, rate), shared)
    conditions = run.conditions(
        device=device.device_kind,
        platform=device.platform,
        host_memory_is_the_devices=shared,
        pgle=jax.config.values["jax_enable_pgle"],
        nbytes=sum(x.nbytes for x in jax.tree.leaves(params)),
        leaves=len(jax.tree.leaves(params)),
        copied_bytes_per_second=rate,
        latency=LATENCY,
        bucket_bytes=bucket_bytes,
    )
    modes: dict[str, Any] = {}
    result = {"conditions": conditions, "target": TARGET, "modes": modes}
    for mode in MODES:
        modes[mode] = _measured(mode, setting, rounds, random_orders, bucket_bytes)
        run.save(result)
    return run.finish(
        result,
        tables=[_table(mode, modes[mode]) for mode in modes],
        notes=[_NO_GAIN if shared else f"target: {TARGET}"],
    )


def _transformer(small: bool) -> Workload:
    layers, width, vocabulary = (2, 64, 128) if small else (4, 1024, 8192)
    return transformer(layers=layers, width=width, vocabulary=vocabulary)


def _arrays(shapes: Any) -> Any:
    """Small random floats; integers, such as tokens, are zeros."""
    rng = np.random.default_rng(0)

    def one(x: Any) -> jax.Array:
        floating = np.issubdtype(x.dtype, np.floating)
        values = 0.02 * rng.standard_normal(x.shape) if floating else np.zeros(x.shape)
        return jax.device_put(values.astype(x.dtype), jax.devices()[0])

    return jax.tree.map(one, shapes)


def _rate(params: Any) -> float:
    """Bytes per second of one copy of everything from host memory."""
    copy = jax.jit(lambda tree: jax.device_put(tree, jax.memory.Space.Device))
    on_host = to_host(params)
    seconds = interleaved({"copy": lambda: copy(on_host)}, 5)["copy"]
    return sum(x.nbytes for x in jax.tree.leaves(params)) / median(seconds)


def _measured(
    mode: str, setting: CopySetting, rounds: int, random_orders: int, bucket_bytes: int
) -> dict[str, Any]:
    """Seconds and predictions of each order."""
    loss, batch = setting.training.loss, setting.batch
    trace = Graph.from_loss if mode == "training" else Graph.from_function
    graph = trace(loss, setting.params, batch, link=setting.link)
    orders = named_orders(graph, random_orders)
    on_host = to_host(setting.params)

    def runner(fn: Callable[..., Any], params: Any) -> Callable[[], Any]:
        step = jax.jit(MODES[mode](fn))
        return lambda: step(params, batch)

    runs = {
        name: runner(from_host(loss, order=order, bucket_bytes=bucket_bytes), on_host)
        for name, order in orders.items()
    }
    runs[ON_DEVICE] = runner(loss, setting.params)
    for run in runs.values():  # a profile is taken of the first calls, if at all
        for _ in range(jax.config.values["jax_pgle_profiling_runs"]):
            jax.block_until_ready(run())
    seconds = interleaved(runs, rounds)
    base = median(seconds[ON_DEVICE])
    copied = 0.0 if setting.shared else 1.0
    timed = graph.scaled(ops=base / graph.computation, recvs=copied)
    return {
        "orders": orders,
        "seconds": seconds,
        "predicted": {name: makespan(timed, order) for name, order in orders.items()},
        "gain": _gains(seconds),
    }


def _gains(seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Throughput over that of the mean random order, by rounds."""
    randoms = [times for name, times in seconds.items() if name.startswith("random")]
    means = [fmean(of_round) for of_round in zip(*randoms, strict=True)]
    return {name: ratio(means, times)._asdict() for name, times in seconds.items()}


def _table(mode: str, measured: dict[str, Any]) -> Table:
    columns = ("order", "median ms", "quartiles", "predicted ms", "throughput", "95 %")
    rows: list[tuple[Any, ...]] = []
    for name in [*ORDERS, ON_DEVICE]:
        gain = measured["gain"][name]
        between = f"{gain['low']:.3f} - {gain['high']:.3f}"
        rows.append((*_cells(name, [name], measured), gain["median"], between))
    randoms = [name for name in measured["orders"] if name.startswith("random")]
    rows.append((*_cells("random, all", randoms, measured), 1.0, ""))
    title = f"{mode}: throughput over the mean of the random orders"
    return Table(title, columns, rows)


def _cells(
    title: str, names: Sequence[str], measured: dict[str, Any]
) -> tuple[Any, ...]:
    """Seconds and predictions of some orders, taken together."""
    every = [1e3 * s for name in names for s in measured["seconds"][name]]
    low, middle, high = quartiles(every)
    predicted = [1e3 * measured["predicted"].get(name, np.nan) for name in names]
    return title, middle, f"{low:.4g} - {high:.4g}", fmean(predicted)
