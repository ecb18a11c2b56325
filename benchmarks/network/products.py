"""Where a step without communication takes JAX longer than PyTorch: part by part.

The parts of a step of the lab's model, on one core, each by itself and in turns: for
every kind of weight w (m x n) and rows x, the three products

    y = x w        dx = dy w^T        dw = x^T dy

attention forward and backward, the normalizations, GELU, and Adam's update; and the
whole step. Parts are timed outside of the program that they are in, where XLA fuses
some of them; so they do not add up to the step.

A page fault is the kernel's work when a page of memory is first touched: of what a call
takes anew, as XLA does with a program's temporaries
(`relaxjax._core.foreign._huge_pages`).
`GLIBC_TUNABLES=glibc.malloc.hugetlb=1` in front of the command takes large pages.
"""

import os
import resource
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.measure import interleaved, ratio
from benchmarks.network.problem import HEADS, LAYERS, ROWS, WIDTH
from benchmarks.report import Result, Rounds, Run, Table, Unavailable, benchmark
from relaxjax._core.foreign._huge_pages import TUNABLES
from relaxjax.tasks import chars, train_step_of
from relaxjax.tasks._chars import CONTEXT, SYMBOLS

Call = Callable[[], Any]
Part = tuple[int, float, Call, Call]
"""How often a step has it, Gflop, and the calls of JAX and of PyTorch."""

WEIGHTS = {
    "queries, keys, values": (LAYERS, WIDTH, 3 * WIDTH),
    "mix": (LAYERS, WIDTH, WIDTH),
    "widen": (LAYERS, WIDTH, 4 * WIDTH),
    "narrow": (LAYERS, 4 * WIDTH, WIDTH),
    "output": (1, WIDTH, SYMBOLS),
}
TOKENS = ROWS * CONTEXT


@benchmark("products", platform="cpu")
def products(run: Run, rounds: Rounds = 20) -> Result:
    """The parts of a step on one core, by JAX and by PyTorch."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise Unavailable('products needs pip install "relaxjax[bench]"') from error
    torch.set_num_threads(1)
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # before JAX counts its threads
    rows = []
    for name, (times, gflop, ours, theirs) in parts(torch).items():
        seconds = interleaved({"jax": ours, "torch": theirs}, rounds)
        jax_s, torch_s = (float(np.median(s)) for s in seconds.values())
        rows.append(
            {
                "part": name,
                "times": times,
                "gflop": times * gflop,
                "jax ms": 1e3 * times * jax_s,
                "torch ms": 1e3 * times * torch_s,
                "ratio": ratio(seconds["jax"], seconds["torch"])._asdict(),
                "jax faults": times * page_faults(ours),
                "torch faults": times * page_faults(theirs),
            }
        )
    settings = {"core": core, "glibc": os.environ.get(TUNABLES)}
    conditions = run.conditions(torch=torch.__version__, **settings)
    columns = (
        "part",
        "times",
        "gflop",
        "jax ms",
        "torch ms",
        ("ratio", lambda row: row["ratio"]["median"]),
        "jax faults",
        "torch faults",
    )
    table = Table.of("Milliseconds and page faults in a step", rows, *columns)
    return run.finish({"conditions": conditions, "rows": rows}, tables=[table])


def page_faults(call: Call, calls: int = 5) -> float:
    """Page faults of a call that no file had to be read for, the mean of some."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        jax.block_until_ready(call())  # leaves what is not JAX's as it is
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / calls


def parts(torch: Any) -> dict[str, Part]:
    """The parts by name; the last is the whole step."""
    found: dict[str, Part] = {}
    for name, (times, m, n) in WEIGHTS.items():
        x, w, dy = _normal(TOKENS, m), _normal(m, n), _normal(TOKENS, n)
        gflop = 2e-9 * TOKENS * m * n
        for product, a, b in (
            ("y = x w", x, w),
            ("dx = dy w^T", dy, w.T),
            ("dw = x^T dy", x.T, dy),
        ):
            found[f"{name}: {product}"] = (times, gflop, *_product(torch, a, b))
    found["attention, and back"] = (LAYERS, 0.0, *_attention(torch))
    found["normalization, and back"] = (2 * LAYERS + 1, 0.0, *_norm(torch))
    found["GELU, and back"] = (LAYERS, 0.0, *_gelu(torch))
    found["Adam"] = (1, 0.0, *_adam(torch))
    found["the step"] = (1, 0.0, *_step(torch))
    return found


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _product(torch: Any, a: np.ndarray, b: np.ndarray) -> tuple[Call, Call]:
    """Both get arrays that may be transposed views as they are."""

    def turned(x: np.ndarray) -> tuple[Any, bool]:
        back = not x.flags.c_contiguous
        return jnp.asarray(np.ascontiguousarray(x.T if back else x)), back

    (left, turn_left), (right, turn_right) = turned(a), turned(b)
    run = jax.jit(lambda a, b: (a.T if turn_left else a) @ (b.T if turn_right else b))
    mine, other = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: run(left, right), lambda: mine @ other


def _both_ways(torch: Any, ours: Any, theirs: Any, *arrays: np.ndarray) -> Any:
    """A function with its gradient, by the sum of its squares."""
    run = jax.jit(
        jax.value_and_grad(lambda *x: jnp.sum(ours(*x) ** 2), range(len(arrays)))
    )
    inputs = [jnp.asarray(x) for x in arrays]
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]

    def back() -> Any:
        for x in tensors:
            x.grad = None
        theirs(*tensors).square().sum().backward()
        return tensors[0].grad

    return lambda: run(*inputs), back


def _attention(torch: Any) -> tuple[Call, Call]:
    shape = ROWS, CONTEXT, HEADS, WIDTH // HEADS
    attend = torch.nn.functional.scaled_dot_product_attention

    def ours(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    def theirs(*qkv: Any) -> Any:
        return attend(*(x.transpose(1, 2) for x in qkv), is_causal=True)

    return _both_ways(torch, ours, theirs, *(_normal(*shape) for _ in range(3)))


def _norm(torch: Any) -> tuple[Call, Call]:
    def ours(x: jax.Array) -> jax.Array:
        return jax.nn.standardize(x, epsilon=1e-6)

    def theirs(x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6)

    return _both_ways(torch, ours, theirs, _normal(TOKENS, WIDTH))


def _gelu(torch: Any) -> tuple[Call, Call]:
    def theirs(x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate="tanh")

    return _both_ways(torch, jax.nn.gelu, theirs, _normal(TOKENS, 4 * WIDTH))


def _adam(torch: Any) -> tuple[Call, Call]:
    size = sum(x.size for x in jax.tree.leaves(_task().params))
    tx, x = optax.adam(1e-3), jnp.zeros(size)
    state, gradient = [x, tx.init(x)], jnp.asarray(_normal(size))

    def update(x: jax.Array, opt_state: Any, gradient: jax.Array) -> Any:
        updates, opt_state = tx.update(gradient, opt_state)
        return optax.apply_updates(x, updates), opt_state

    run = jax.jit(update, donate_argnums=(0, 1))

    def ours() -> Any:
        state[:] = run(*state, gradient)
        return state[0]

    tensor = torch.zeros(size, requires_grad=True)
    tensor.grad = torch.from_numpy(np.array(gradient))
    theirs = torch.optim.Adam([tensor], lr=1e-3, fused=True)
    return ours, theirs.step


def _step(torch: Any) -> tuple[Call, Call]:
    from benchmarks.network.torch_twin import twin
    from relaxjax._core._tree import leaf_names

    task, tx = _task(), optax.adam(1e-3)
    names, leaves = leaf_names(task.params), jax.tree.leaves(task.params)
    model = twin(dict(zip(names, map(np.array, leaves), strict=True)), heads=HEADS)
    batch = next(task.batches(0, ROWS))
    rows, placed = torch.from_numpy(np.array(batch)), jnp.asarray(batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    run = jax.jit(train_step_of(task, tx), donate_argnums=(0, 1))
    params = jax.tree.map(jnp.array, task.params)
    state = [params, tx.init(params)]

    def ours() -> Any:
        *state[:], metrics = run(*state, placed)
        return metrics

    def theirs() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = model(rows)
        loss.backward()
        optimizer.step()
        return loss

    return ours, theirs


def _task() -> Any:
    return chars(0, width=WIDTH, layers=LAYERS)
