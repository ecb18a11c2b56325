"""Any training: whatever befell it, a run of usual steps afterwards still learns.

Workers walk down quadratics of their own, g_i = x_i - t_i. On the way come steps that
are zero, not finite, without some workers or without all of them; states are resumed,
resized to other numbers of workers, and carried into another period. At any time models
and states are finite and bounded, and replicas are equal. In the end a hundred usual
steps must bring the mean of all models to the mean of all targets, and keep the models
together.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import relaxjax
from relaxjax import checkpoint
from relaxjax._core._relaxation import Training
from relaxjax._names import parse

WARM_UP, FOREVER = 5, 10**6
SHAPES = {"b": (5,), "head": (3, 4), "w": (6, 8)}
DEAD = 2  # rows of w without a gradient
PERIODS, WORKERS = (2, 12), (3, 4)
USUAL_STEPS, SWING = 120, 60  # SWING: the last of them, whose models are averaged


class Chain(NamedTuple):
    """A name of the table, with options, and where a guard stands."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    guarded: str = "behind"  # the reducer; "around" the whole chain; "" is no guard
    weighs: bool = True  # takes `weight=`
    ignores: bool = True  # what workers hold whose weight is 0
    within: float = 0.25  # of the mean target at the end, as a root mean square
    rate: float = 0.05

    @property
    def row(self) -> Any:
        return parse(self.name).row

    @property
    def periodic(self) -> bool:
        return "sync_every" in self.row.options

    def make(self, workers: int, period: int) -> Any:
        sgd = optax.sgd(self.rate)
        inner = optax.apply_if_finite(sgd, FOREVER) if self.guarded == "behind" else sgd
        options = dict(self.options)
        if self.periodic:
            options["sync_every"] = period
        training = Training(inner, self.rate, 10**4, workers)
        tx = parse(self.name).build("data", training, **options)
        return relaxjax.skip_nonfinite(tx, "data") if self.guarded == "around" else tx


def local(name: str, **options: Any) -> Chain:
    return Chain(name, options, "around", ignores=False)


def one_bit(name: str, rate: float, **options: Any) -> Chain:
    """Frozen variances: elements whose gradients were small then go on to swing."""
    options = {"freeze_step": WARM_UP, **options}
    return Chain(name, options, "", within=0.8, rate=rate)


def mixed(name: str, **options: Any) -> Chain:
    return Chain(name, options, "around", weighs=False, ignores=False)


FEW = [
    Chain("all_reduce+sign+ef14@two_shot"),
    Chain("power_sgd", {"rank": 2, "min_compression": 0.0}),
    one_bit("zero_one_adam", 0.1, local_doubling=2, most_local_steps=4),
    local("diloco", outer_momentum=0.5),
    local("local_sgd+quantize8+ef14"),
    mixed("gossip+quantize8"),
]
MORE = [
    Chain("all_reduce"),
    Chain("all_reduce+quantize4+ef21"),
    Chain("all_reduce+quantize4+loco@one_shot"),
    Chain("all_reduce+quantize8+econtrol@ring"),
    Chain("all_reduce+quantize4+intersection@two_shot"),
    Chain("power_sgd", {"rank": 2, "min_compression": 0.0, "bits": 8}),
    Chain("acp_sgd", {"rank": 2, "min_compression": 0.0}),
    Chain("acp_sgd", {"rank": 2, "min_compression": 0.0, "bits": 8}),
    Chain("deep_gradient_compression", {"density": 0.25}, "around"),
    Chain("arc_top_k", {"density": 0.5, "rank": 1, "eta": 0.5}),
    Chain("arc_top_k", {"density": 0.5, "rank": 1, "eta": 0.5, "bits": 8}),
    Chain("demo", {"k": 4, "chunk": 4, "rate": 1.0}, "around"),
    Chain("dion", {"fraction": 0.5}, "around"),
    Chain("dion", {"fraction": 0.5, "bits": 8}, "around"),
    Chain("dion2", {"fraction": 0.5}, "around"),
    Chain("dion2", {"fraction": 0.5, "bits": 8, "neuron_decay": 0.9}, "around"),
    Chain("delay", weighs=False),
    Chain("parameter_server+quantize8+ef14", guarded="around"),
    one_bit("one_bit_adam", 0.1),
    one_bit("one_bit_lamb", 0.15),
    one_bit("one_bit_adam", 0.1)._replace(guarded="around"),
    local("local_sgd"),
    local("slow_momentum"),
    local("sparse_loco", density=0.25),
    local("post_local_sgd", start_step=WARM_UP),
    *map(mixed, ("gossip", "push_sum", "relay_sum", "exact_diffusion", "moniqua")),
    *map(mixed, ("gradient_tracking", "dcd_psgd+quantize8", "deep_squeeze+quantize8")),
    *map(mixed, ("quasi_global_momentum", "combine_then_adapt")),
    mixed("asynchronous_average"),
    mixed("eager_diloco", outer_momentum=0.5),
    mixed("streaming_diloco", outer_momentum=0.5),
    mixed("decoupled_diloco", outer_momentum=0.5),
    mixed("asynchronous_diloco", outer_momentum=0.5),
    mixed("heloco", outer_momentum=0.5),
    mixed("desynced"),
    mixed("sparta", share=0.5),
]


@functools.cache
def targets(workers: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(workers)
    apart = {k: rng.normal(size=(workers, *s)) for k, s in SHAPES.items()}
    common = {k: rng.normal(size=s) for k, s in SHAPES.items()}
    return {k: common[k] + 0.3 * (apart[k] - apart[k].mean(0)) for k in SHAPES}


@functools.cache
def programs(chain: int, workers: int, period: int) -> tuple[Any, Any]:
    """What makes the state, and a step of it: of targets, masks and weights."""
    which = (FEW + MORE)[chain]
    tx: Any = which.make(workers, period)

    @jax.jit
    def step(x, state, target, scale, bad, weight):
        def one(x, state, target, bad, weight):
            g = jax.tree.map(lambda x, t: scale * (x - t) + bad, x, target)
            g["w"] = g["w"].at[:DEAD].set(bad)
            extra = {"weight": weight} if which.weighs else {}
            updates, state = tx.update(g, state, x, **extra)
            return optax.apply_updates(x, updates), state

        return jax.vmap(one, axis_name="data")(x, state, target, bad, weight)

    return tx, step


def floats(tree: Any) -> list[np.ndarray]:
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    return [x for x in leaves if np.issubdtype(x.dtype, np.floating)]


class AnyTraining(RuleBasedStateMachine):
    chains = range(len(FEW))

    @initialize(data=st.data(), first=st.integers(0, 6))
    def start(self, data: Any, first: int) -> None:
        self.chain = data.draw(st.sampled_from(self.chains))
        self.which = (FEW + MORE)[self.chain]
        self.workers = data.draw(st.sampled_from(WORKERS))
        self.period = data.draw(st.sampled_from(PERIODS)) if self.which.periodic else 0
        self.x, self.state = self.fresh()
        warm = WARM_UP if "freeze_step" in self.which.options else 0
        self.run(first + warm)

    def fresh(self) -> tuple[Any, Any]:
        tx, _ = programs(self.chain, self.workers, self.period)
        zeros = {k: jnp.zeros(s) for k, s in SHAPES.items()}
        return relaxjax.init(tx, zeros, relaxjax.emulate(self.workers))

    def run(self, steps: int = 1, scale: float = 1.0, bad: Any = 0, w: Any = 1) -> Any:
        _, step = programs(self.chain, self.workers, self.period)
        bad = jnp.broadcast_to(jnp.asarray(bad, jnp.float32), (self.workers,))
        w = jnp.broadcast_to(jnp.asarray(w, jnp.float32), (self.workers,))
        seen = []
        for _ in range(steps):
            state = relaxjax.advance_phases(self.state)
            goals = targets(self.workers)
            self.x, self.state = step(self.x, state, goals, scale, bad, w)
            seen.append(self.x)
        return seen

    @rule(steps=st.integers(1, 6))
    def usual(self, steps: int) -> None:
        self.run(steps)

    @rule()
    def without_a_gradient(self) -> None:
        self.run(scale=0.0)

    @precondition(lambda self: self.which.guarded)
    @rule(worker=st.integers(0, min(WORKERS) - 1))
    def not_finite(self, worker: int) -> None:
        before = self.x
        self.run(bad=np.where(np.arange(self.workers) == worker, np.nan, 0))
        if self.which.name == "delay":
            self.run()  # in which it arrives
        else:
            jax.tree.map(np.testing.assert_array_equal, before, self.x)

    @precondition(lambda self: self.which.weighs)
    @rule(who=st.integers(1, 6), steps=st.integers(1, 3))
    def away(self, who: int, steps: int) -> None:
        """Some have no example, and gradients of 0 / 0 if nobody looks at them."""
        gone = np.array([who >> i & 1 for i in range(self.workers)], bool)
        bad = np.where(gone & self.which.ignores, np.nan, 0)
        self.run(steps, bad=bad, w=1.0 - gone)

    @precondition(lambda self: self.which.weighs and self.which.ignores)
    @rule(steps=st.integers(1, 5))
    def nobody(self, steps: int) -> None:
        """Moments are not lost (0/1 Adam's become the mean of them in some steps)."""
        before = [np.any(x) for x in self.moments()]
        self.run(steps, bad=np.nan, w=0)
        assert [np.any(x) for x in self.moments()] == before

    def moments(self) -> list[np.ndarray]:
        found = optax.tree.get_all_with_path(self.state, "mu")
        return [x for _, tree in found for x in floats(tree)]

    @rule()
    def resume(self) -> None:
        self.x, self.state = jax.tree.map(
            lambda x: jnp.asarray(np.asarray(x)), (self.x, self.state)
        )

    @rule(workers=st.sampled_from(WORKERS))
    def resize(self, workers: int) -> None:
        self.workers = workers
        before = (self.x, self.state)
        self.x, self.state = checkpoint.resized(before, self.fresh())[0]

    @precondition(lambda self: self.which.periodic)
    @rule(period=st.sampled_from(PERIODS))
    def change_period(self, period: int) -> None:
        self.period = period

    @invariant()
    def is_bounded(self) -> None:
        for x in floats(self.x):
            assert np.abs(x).max(initial=0) < 10
        for x in floats(self.state):
            assert np.isfinite(x).all()
            assert np.abs(x).max(initial=0) < 1e4

    @invariant()
    def replicas_are_equal(self) -> None:
        if not self.which.row.apart:
            for x in floats(self.x):
                assert (x == x[:1]).all()

    def teardown(self) -> None:
        if hasattr(self, "x"):
            seen = self.run(USUAL_STEPS)
            self.is_bounded()
            goals = targets(self.workers)
            wide = max(np.ptp(t, axis=0).max() for t in goals.values())
            ends = [max(np.ptp(x, axis=0).max() for x in floats(t)) for t in seen[-12:]]
            assert min(ends) <= 0.5 * wide
            for key, goal in goals.items():
                live = slice(DEAD if key == "w" else 0, None)
                x = np.mean([t[key] for t in seen[-SWING:]], axis=(0, 1))
                off = np.sqrt(np.mean((x - goal.mean(0))[live] ** 2))
                assert off < self.which.within, (self.which, key, off)


class Everything(AnyTraining):
    chains = range(len(FEW + MORE))


def one_chain(name: str) -> type[AnyTraining]:
    """The machine of one chain."""
    names = [which.name for which in FEW + MORE]
    return type("OneChain", (AnyTraining,), {"chains": [names.index(name)]})


def run(machine: type[AnyTraining], examples: int, shrink: bool = True) -> None:
    how = settings(
        max_examples=examples,
        stateful_step_count=10,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        phases=[Phase.generate, Phase.shrink][: 1 + shrink],
    )
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("name", [which.name for which in FEW])
def test_a_run_survives_what_befalls_it(name):
    run(one_chain(name), 8)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [200, pytest.param(2000, marks=pytest.mark.every)])
def test_every_run_survives_what_befalls_it(runs):
    """A few hundred of two thousand find what ordinary runs miss."""
    run(Everything, runs)
