"""Random programs: a relaxation, an optimizer of optax, a mesh, a wrapper, sizes, data.

`draw` makes one of a seed, `run` runs it as a user would write it, and `fault` says
what is wrong with what came out. The model is a tree of leaves of random shapes, each
drawn to its own example: the loss of a worker is the mean over its rows of

    sum over leaves of mean((p - row)^2) / 2

so that right values are made by hand, by one optimizer on the gradients of all rows.
"""

import random
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import relaxjax
from benchmarks.crossing.hands import arguments
from benchmarks.crossing.inventory import ROWS, Row
from benchmarks.crossing.verdicts import ROUNDINGS, is_ours, is_said
from relaxjax import compression as codes
from relaxjax import fsdp
from relaxjax.workers import describe, workers_of
from tests import second_axis

WORKERS, ROWS_EACH, STEPS, EVERY = 4, 3, 4, 2
EXACT = {
    name: {"algorithm": name}
    for name in ("psum", "ring", "two_shot", "one_shot", "tree", "halving_doubling")
}
CODED = {
    "quantize": codes.quantize(4),
    "quantize, fed back": codes.error_feedback(codes.quantize(4)),
    "sign": codes.sign(),
    "drive": codes.drive(),
    "top_k, fed back": codes.error_feedback(codes.top_k(0.2)),
    "qsgd": codes.qsgd(4),
    "random_k": codes.random_k(0.3),
}
MADE: dict[str, Any] = {
    "power_sgd": lambda **how: relaxjax.power_sgd("data", rank=1, **_ALL, **how),
    "power_sgd, 8 bits": lambda **how: relaxjax.power_sgd(
        "data", rank=1, bits=8, **_ALL, **how
    ),
    "power_sgd, later": lambda **how: relaxjax.power_sgd(
        "data", rank=1, start_after=2, **_ALL, **how
    ),
    "acp_sgd": lambda **how: relaxjax.acp_sgd("data", rank=1, **_ALL, **how),
    "deep_gradient_compression": lambda **how: relaxjax.deep_gradient_compression(
        "data", density=0.2, clip=0.5, **how
    ),
}
_ALL = {"min_compression": 0}
REDUCERS = [*EXACT, *CODED, *MADE]
# Under explicit sharding optax's other rows meet rules of JAX that are not ours.
TYPED = ("sgd", "adam", "adamw", "lion", "rmsprop", "trace", "clip", "radam")
# A key makes noise of a worker's own, by design; a pair of params has no one gradient.
KEYED = {"add_noise", "noisy_sgd", "lookahead"}
WRAPPERS = ("none", "none", "MultiSteps", "skipping MultiSteps", "apply_if_finite")
PLACES = (
    *("behind", "behind", "scanned", "specs", "specs", "unreduced", "unreduced"),
    *("server", "fsdp", "fsdp over", "local_sgd"),
)


class Program(NamedTuple):
    """One draw; each field is a name, and `seed` draws sizes and data."""

    seed: int
    place: str
    reducer: str
    row: str
    wrapper: str
    nan: bool  # one row of one worker, in one step


def draw(seed: int) -> Program:
    rng = random.Random(seed)
    place = rng.choice(PLACES)
    rows = TYPED if place == "unreduced" else [x for x in ROWS if x not in KEYED]
    row, reducer = rng.choice(list(rows)), rng.choice(REDUCERS)
    free = place in ("behind", "specs")
    wrapper = rng.choice(WRAPPERS) if free and not ROWS[row].arguments else "none"
    return Program(seed, place, reducer, row, wrapper, free and rng.random() < 0.2)


def reducer_of(name: str, **how: Any) -> Any:
    if name in MADE:
        return MADE[name](**how)
    of_code = {"compressor": CODED[name]} if name in CODED else EXACT[name]
    return relaxjax.all_reduce("data", **of_code, **how)


def wrapped(name: str, tx: Any) -> Any:
    if name == "MultiSteps":
        return optax.MultiSteps(tx, EVERY).gradient_transformation()
    if name == "skipping MultiSteps":
        skip = optax.skip_not_finite
        several = optax.MultiSteps(tx, EVERY, should_skip_update_fn=skip)
        return several.gradient_transformation()
    return optax.apply_if_finite(tx, 5) if name == "apply_if_finite" else tx


def sizes(program: Program) -> dict[str, tuple[int, ...]]:
    """Shapes of leaves; of "specs" those that `second_axis.SPECS` can cut."""
    rng = np.random.default_rng(program.seed)
    if program.place in ("specs", "unreduced"):
        return {k: x.shape for k, x in second_axis.drawn(program.seed)[0].items()}
    ranks = [2, 1, *rng.integers(0, 4, 3)]
    return {f"l{i}": tuple(rng.integers(1, 9, n).tolist()) for i, n in enumerate(ranks)}


def start(program: Program) -> Any:
    rng = np.random.default_rng(program.seed + 1)
    draws = {k: rng.normal(size=s) for k, s in sizes(program).items()}
    return {k: jnp.asarray(x, jnp.float32) for k, x in draws.items()}


def batches(program: Program) -> list[Any]:
    """Rows of all workers in each step, around a center of each worker's own."""
    rng = np.random.default_rng(program.seed + 2)
    made = []
    for step in range(STEPS):
        batch = {}
        for k, shape in sizes(program).items():
            centers = rng.normal(size=(WORKERS, 1, *shape))
            rows = centers + 0.3 * rng.normal(size=(WORKERS, ROWS_EACH, *shape))
            batch[k] = rows.reshape(-1, *shape).astype(np.float32)
            if program.nan and step == 1:
                batch[k][:ROWS_EACH] = np.nan
        made.append(batch)
    return made


def loss_of(params: Any, batch: Any) -> jax.Array:
    parts = jax.tree.map(lambda p, t: jnp.mean((p[None] - t) ** 2) / 2, params, batch)
    return jnp.stack(jax.tree.leaves(parts)).sum()


def train_step_of(tx: Any, row: Row, own: bool, gathered: Any = None) -> Any:
    """A step as users write it; `own`: the optimizer is given the worker's own loss."""

    def mean(tree: Any) -> Any:
        of_slices = gathered and isinstance(tree, dict)  # which are reduced already
        return tree if of_slices else lax.pmean(tree, "data")

    def step(params: Any, state: Any, batch: Any) -> Any:
        def loss(model: Any) -> jax.Array:
            return (gathered or loss_of)(model, batch)

        def of_all(model: Any) -> jax.Array:
            alike = relaxjax.reduce_in_backward(model, relaxjax.all_reduce("data"))
            return mean(loss(alike))

        value, grads = jax.value_and_grad(loss)(params)
        how = {} if own else {"mean": mean, "value_fn": of_all}
        given = arguments(row, loss, **how)(params, value, grads)
        updates, state = tx.update(grads, state, params, **given)
        return optax.apply_updates(params, updates), state, {}

    return step


def stepped(now: Any, run: Any, program: Program, every: int = 1) -> list[Any]:
    """Params after each step, or after `every` of them in one call."""
    made, after = batches(program), []
    for i in range(0, STEPS, every):
        batch = made[i] if every == 1 else _interleaved(made[i : i + every])
        *now, _ = run(*now, batch)
        after.append(now[0])
    return after


def _interleaved(several: list[Any]) -> Any:
    """Rows [workers * steps * rows, ...], so that each worker has its own of each."""

    def joined(*xs: np.ndarray) -> np.ndarray:
        split = [x.reshape(WORKERS, 1, ROWS_EACH, *x.shape[1:]) for x in xs]
        return np.concatenate(split, axis=1).reshape(-1, *xs[0].shape[1:])

    return jax.tree.map(joined, *several)


def scan_of(step: Any) -> Any:
    """`EVERY` steps as one."""

    def several(params: Any, state: Any, batch: Any) -> Any:
        each = jax.tree.map(lambda x: x.reshape(EVERY, ROWS_EACH, *x.shape[1:]), batch)

        def one(now: Any, b: Any) -> Any:
            return step(*now, b)[:2], None

        return *lax.scan(one, (params, state), each)[0], {}

    return several


def run(program: Program) -> list[Any]:
    """Params after each step, with all copies; warnings and errors come out.

    Of a plain `jit` pairs of params and state.
    """
    first, row = start(program), ROWS[program.row]
    tx = transformation(program, first)
    if program.place == "unreduced":
        return list(second_axis.in_plain_jit(tx, program.seed))
    mesh: Any = relaxjax.emulate(WORKERS)
    how: dict[str, Any] = {}
    if program.place == "specs":
        mesh, how = (
            second_axis.mesh_of(second_axis.AxisType.Auto),
            {"axis_name": "data"},
        )
        first = second_axis.placed(first, mesh)
    elif program.place == "fsdp over":
        mesh = relaxjax.emulate({"island": 2, "data": 2})
    gathered, own = None, program.place == "local_sgd"
    if program.place.startswith("fsdp"):
        over: Any = {"over": "data"} if program.place == "fsdp over" else {}
        gathered, now = (
            fsdp.gathered(loss_of, "data"),
            fsdp.init(tx, first, mesh, **over),
        )
    else:
        now = relaxjax.init(tx, first, mesh, **how)
    step = train_step_of(tx, row, own, gathered)
    if program.place == "scanned":
        run = relaxjax.data_parallel(scan_of(step), mesh)
        return stepped(now, run, program, EVERY)
    run = relaxjax.data_parallel(step, mesh, **how)
    after = stepped(now, run, program)
    if gathered:
        return [fsdp.whole(shards) for shards in after]
    return after


def transformation(program: Program, first: Any, scale: float = 1.0) -> Any:
    optimizer = ROWS[program.row].make(first)
    if scale != 1:
        optimizer = optax.chain(optimizer, optax.scale(scale))
    if program.place == "server":
        return relaxjax.parameter_server(optimizer, "data")
    if program.place == "fsdp":
        return optimizer
    if program.place == "fsdp over":
        return optax.chain(optimizer, relaxjax.local_sgd("island", EVERY))
    if program.place == "local_sgd":
        return optax.chain(optimizer, relaxjax.local_sgd("data", EVERY))
    how = {"specs": second_axis.SPECS} if program.place == "specs" else {}
    reducer = reducer_of(program.reducer, **how)
    return wrapped(program.wrapper, optax.chain(reducer, optimizer))


def by_hand(program: Program, groups: int) -> list[Any]:
    """Each group of workers with one optimizer; their mean after every second step."""
    row, first = ROWS[program.row], start(program)
    tx = wrapped(program.wrapper, row.make(first))

    def step(params: Any, state: Any, batch: Any) -> Any:
        def loss(model: Any) -> jax.Array:
            return loss_of(model, batch)

        value, grads = jax.value_and_grad(loss)(params)
        given = arguments(row, loss)(params, value, grads)
        updates, state = tx.update(grads, state, params, **given)
        return optax.apply_updates(params, updates), state

    run, after = jax.jit(step), []
    models = [(first, tx.init(first)) for _ in range(groups)]
    for number, batch in enumerate(batches(program), start=1):
        parts = jax.tree.map(lambda x: np.split(x, groups), batch)
        models = [
            run(*model, jax.tree.map(lambda x, i=i: x[i], parts, is_leaf=_is_list))
            for i, model in enumerate(models)
        ]
        mean = jax.tree.map(lambda *x: sum(x) / groups, *(p for p, _ in models))
        if groups > 1 and number % EVERY == 0:
            models = [(mean, state) for _, state in models]
        after.append(mean)
    return after


def _is_list(x: Any) -> bool:
    return isinstance(x, list)


def fault(program: Program, after: list[Any]) -> str:
    """What is wrong with params after each step; "" if nothing is."""
    for number, params in enumerate(after):
        if copies := second_axis.apart(params):
            return f"copies of {copies} part"
        meets = program.place != "local_sgd" or (number + 1) % EVERY == 0
        if meets and not program.place.startswith(("fsdp", "unreduced")):
            parts = [apart_by(program, np.asarray(x)) for x in jax.tree.leaves(params)]
            if any(parts):
                return f"workers part by {max(parts)}"
    if program.place == "unreduced":
        if not restored_is_the_same(program, after[-1][0]):
            return "a state that went through NumPy goes on otherwise"
    elif described(program, 0.5) == described(program, 0.25):
        return "another learning rate is taken for the same program"
    right = expected(program)
    return "" if right is None else _distance(program, after, right)


def restored_is_the_same(program: Program, last: Any) -> bool:
    """Whether training ends at the same params after a restart before a step."""
    tx = transformation(program, start(program))
    *_, (params, _) = second_axis.in_plain_jit(tx, program.seed, restored=2)
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(last), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def described(program: Program, scale: float) -> dict[str, str]:
    """What processes compare, and a checkpoint keeps, of an optimizer times `scale`."""
    first = start(program)
    workers = workers_of(relaxjax.emulate({"island": 2, "data": 2}), None, "drawn")
    return describe(transformation(program, first, scale), first, workers)


def apart_by(program: Program, x: np.ndarray) -> float:
    """How far workers are apart; after a meeting of models p + (m - p) is rounded."""
    if np.array_equal(x, np.broadcast_to(x[:1], x.shape), equal_nan=True):
        return 0.0
    apart = float(np.max(np.abs(x - x[:1])))
    bound = 2.0**-22 * float(np.max(np.abs(x)))
    return 0.0 if program.place == "local_sgd" and apart <= bound else apart


def expected(program: Program) -> list[Any] | None:
    """What one device, or by-hand workers, come to; None where codes are between."""
    if program.place == "scanned":
        return run(program._replace(place="behind"))[EVERY - 1 :: EVERY]
    if program.place == "unreduced" or program.nan:
        return None
    if program.place == "local_sgd":
        return by_hand(program, WORKERS)[EVERY - 1 :: EVERY]
    if program.place == "fsdp over":
        return by_hand(program, 2)
    exact = program.place in ("server", "fsdp") or program.reducer in EXACT
    return by_hand(program, 1) if exact else None


def _distance(program: Program, after: list[Any], right: list[Any]) -> str:
    """As `benchmarks.crossing.verdicts.distance`: relative to the way that was gone."""
    if program.place == "local_sgd":
        after = after[EVERY - 1 :: EVERY]
    first = start(program)
    way = gap = most = 0.0
    for ours, theirs in zip(after, right, strict=True):
        for name, origin in first.items():
            x, y = np.asarray(ours[name]), np.asarray(theirs[name])
            x, y = (a[0] if a.ndim > origin.ndim else a for a in (x, y))
            way = max(way, float(np.max(np.abs(y - origin), initial=0)))
            gap = max(gap, float(np.max(np.abs(x - y), initial=0)))
            most = max(most, float(np.max(np.abs(y), initial=0)))
    apart = max(0.0, gap - ROUNDINGS * most) / (way or 1)
    limit = max(ROWS[program.row].tolerance, 1e-4)
    return "" if apart <= limit else f"{apart:.2g} of the way from the right value"


def is_refused_alone(program: Program) -> bool:
    """Whether the optimizer does not take these leaves on one device either."""
    try:
        by_hand(program, 1)
    except Exception:
        return True
    return False


def verdict(program: Program) -> tuple[str, str]:
    """ "right", "refused", "warned", "wrong" or "broken", and words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            after = jax.block_until_ready(run(program))
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            named = is_ours(error) or is_refused_alone(program)
            return ("refused" if named else "broken"), words
    said = [str(w.message) for w in caught if is_said(str(w.message))]
    if said:
        return "warned", said[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = fault(program, after)
    return ("wrong", wrong) if wrong else ("right", "")
