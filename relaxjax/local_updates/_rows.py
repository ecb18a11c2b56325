"""The names of what sends later: local steps and outer optimizers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax._core._relaxation import SYNC_EVERY, Relaxation, Sends, Training
from relaxjax.gradients import ALGORITHMS as EXACT_ALGORITHMS
from relaxjax.gradients import CHOICES
from relaxjax.local_updates._builds import around, local, nesterov, outer_half
from relaxjax.local_updates.late._asynchronous_average import asynchronous_average
from relaxjax.local_updates.late._asynchronous_diloco import asynchronous_diloco
from relaxjax.local_updates.late._decoupled_diloco import decoupled_diloco
from relaxjax.local_updates.late._delayed_nesterov import delayed_nesterov
from relaxjax.local_updates.late._eager_diloco import eager_diloco
from relaxjax.local_updates.late._heloco import heloco
from relaxjax.local_updates.late._streaming_diloco import streaming_diloco
from relaxjax.local_updates.parts._desynced import desynced
from relaxjax.local_updates.parts._sparta import sparta
from relaxjax.local_updates.periodic._diloco import diloco
from relaxjax.local_updates.periodic._local_sgd import local_sgd
from relaxjax.local_updates.periodic._post_local_sgd import post_local_sgd
from relaxjax.local_updates.periodic._slow_momentum import slow_momentum
from relaxjax.local_updates.periodic._sparse_loco import sparse_loco

_SYNCS = frozenset({"bucket_bytes", "sync_every"})
_PERIODS = {
    "params": SYNC_EVERY,
    "mu": 3 * SYNC_EVERY,
    "nu": 6 * SYNC_EVERY,
    "trace": 3 * SYNC_EVERY,
}
_OUTER = _SYNCS | {"outer_learning_rate", "outer_momentum"}
_LOW_RANK = frozenset({"rank", "bits"})  # models averaged by PowerSGD


def _in_turn(outer: Callable[..., Any]) -> Callable[..., Any]:
    """Builds DiLoCo whose workers arrive by turns, each in every H-th step."""

    def build(
        axis_name: AxisName,
        training: Training,
        *,
        sync_every: int = SYNC_EVERY,
        outer_learning_rate: float = 0.7,
        outer_momentum: float = 0.9,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        require_whole("arrivals by turns", "sync_every", sync_every)
        n = training.workers
        rule = outer(outer_learning_rate, outer_momentum, n)
        arrivals = _turns(n, sync_every)
        return asynchronous_diloco(
            training.optimizer, axis_name, arrivals, rule, **parts
        )

    return build


def _turns(workers: int, every: int) -> np.ndarray:
    """[every, slots]: worker i arrives in step (i + 1) H / n of a round of H."""
    due = -(-np.arange(1, workers + 1) * every // workers) - 1
    here = np.bincount(due, minlength=every)
    table = np.full((every, here.max()), -1)
    place = np.arange(workers) - (np.cumsum(here) - here)[due]
    table[due, place] = np.arange(workers)
    return table


def _desynced(
    axis_name: AxisName, training: Training, periods: Any = None, **parts: Any
) -> Any:
    """Params and the moments that the optimizer has, at the paper's ratios."""
    inner = training.optimizer
    if periods is not None:
        return desynced(inner, axis_name, periods=periods, **parts)
    state = jax.eval_shape(inner.init, jax.ShapeDtypeStruct((2, 2), jnp.float32))
    names = [n for n in _PERIODS if optax.tree.get_all_with_path(state, n)]
    periods = {name: _PERIODS[name] for name in ("params", *names)}
    return desynced(inner, axis_name, periods=periods, **parts)


def _slow_momentum(axis_name: AxisName, training: Training, **parts: Any) -> Any:
    """Its momentum is in units of the gradient, as a rate that changes demands."""
    rate = training.learning_rate
    own = {"learning_rate": rate} if callable(rate) else {}
    return local(functools.partial(slow_momentum, **own))(axis_name, training, **parts)


def _sparta(axis_name: AxisName, training: Training, **parts: Any) -> Any:
    return optax.chain(training.optimizer, sparta(axis_name, **parts))


def _post_local_sgd(axis_name: AxisName, training: Training, **parts: Any) -> Any:
    """Averages models from half of training on, by default."""
    parts = {"start_step": training.steps // 2, **parts}
    return around(post_local_sgd)(axis_name, training, **parts)


_syncs = functools.partial(
    Relaxation,
    algorithms=CHOICES,
    compressors=True,
    options=_SYNCS,
    period=SYNC_EVERY,
    apart=True,
)
_models = functools.partial(Sends, kind="models", why="one exchange in {every} steps")
ROWS = (
    _syncs(
        name="local_sgd",
        summary="models are averaged every few steps",
        build=local(local_sgd),
        options=_SYNCS | _LOW_RANK | {"merge"},
        sends=_models(
            line="optax.chain(optimizer, relaxjax.local_sgd({args}))", variants=True
        ),
    ),
    _syncs(
        name="diloco",
        summary="local steps, then one of an outer optimizer",
        build=outer_half(diloco),
        options=_OUTER | _LOW_RANK | {"merge"},
        sends=_models(line="relaxjax.diloco(optimizer, {args})", variants=True),
    ),
    _syncs(
        name="muloco",
        summary="DiLoCo around Muon",
        build=outer_half(diloco),
        options=_OUTER | _LOW_RANK | {"merge"},
        parent="muon",
    ),
    _syncs(
        name="eager_diloco",
        summary="DiLoCo that does not wait for the others' part",
        build=outer_half(eager_diloco),
        options=_OUTER | _LOW_RANK,
        sends=_models(
            line="relaxjax.eager_diloco(optimizer, {args})",
            why="one exchange in {every} steps, of the round before",
            early=True,
        ),
    ),
    _syncs(
        name="post_local_sgd",
        summary="all_reduce at first, then local_sgd",
        build=_post_local_sgd,
        compressors=False,
        options=_SYNCS | {"start_step"},
        period=None,
    ),
    Relaxation(
        name="sparse_loco",
        summary="local steps; a few values of each chunk in two bits",
        build=around(sparse_loco),
        options=_SYNCS
        | {"bits", "chunk_size", "decay", "density", "outer_learning_rate"},
        period=SYNC_EVERY,
        apart=True,
        sends=Sends(line="relaxjax.sparse_loco(optimizer, {args})"),
    ),
    _syncs(
        name="streaming_diloco",
        summary="DiLoCo that synchronizes in fragments, by turns",
        build=around(nesterov(streaming_diloco)),
        options=_OUTER | {"fragments", "mixing", "overlap"},
        sends=Sends(line="relaxjax.streaming_diloco(optimizer, {args})"),
    ),
    _syncs(
        name="decoupled_diloco",
        summary="DiLoCo in fragments that merge by length and direction",
        build=around(nesterov(decoupled_diloco)),
        options=_OUTER | {"fragments", "merge", "overlap", "present"},
        sends=Sends(line="relaxjax.decoupled_diloco(optimizer, {args})"),
    ),
    _syncs(
        name="asynchronous_diloco",
        summary="DiLoCo whose workers arrive by turns, with delayed Nesterov",
        build=_in_turn(lambda eta, mu, n: delayed_nesterov(eta, momentum=mu, every=n)),
        options=_OUTER,
        sends=Sends(grows=True),
    ),
    _syncs(
        name="heloco",
        summary="DiLoCo by turns, whose outer gradients the momentum turns",
        build=_in_turn(lambda eta, mu, n: heloco(eta, momentum=mu, weights=1 / n)),
        options=_OUTER,
        sends=Sends(grows=True),
    ),
    Relaxation(
        name="sparta",
        summary="a small share of each model is averaged in every step",
        build=_sparta,
        algorithms=("auto", "psum", *EXACT_ALGORITHMS),
        options=frozenset({"bucket_bytes", "delay", "share"}),
        apart=True,
        sends=Sends(line="optax.chain(optimizer, relaxjax.sparta({args}))"),
    ),
    _syncs(
        name="desynced",
        summary="params are averaged seldom, moments more seldom (DES-LOC)",
        build=_desynced,
        options=frozenset({"bucket_bytes", "periods"}),
        period=_PERIODS["nu"],
        sends=Sends(
            line="relaxjax.desynced(optimizer, {args}, "
            'periods={"params": 8, "mu": 24, "nu": 48})',
        ),
    ),
    _syncs(
        name="slow_momentum",
        summary="local steps, with momentum over their rounds (SlowMo)",
        build=_slow_momentum,
        options=_SYNCS | _LOW_RANK | {"momentum"},
        sends=_models(line="optax.chain(optimizer, relaxjax.slow_momentum({args}))"),
    ),
    _syncs(
        name="asynchronous_average",
        summary="models are averaged as they were some steps ago",
        build=local(asynchronous_average),
        options=_SYNCS | {"delay"},
        sends=_models(
            line="optax.chain(optimizer, relaxjax.asynchronous_average({args}))",
            why="one exchange in {every} steps, of models of the step before",
            early=True,
        ),
    ),
)
