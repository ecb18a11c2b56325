"""A run as on many GPUs: bfloat16, checkpoints, a log, and a way back to all_reduce.

The same file runs alone, under `relaxjax run -n 2`, and under SLURM: see the page
"Production" of the documentation.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import relaxjax
from relaxjax import checkpoint, compression, hosts
from relaxjax.tasks import digits

CODE = compression.error_feedback(compression.top_k(0.01))
RELAXED = optax.chain(relaxjax.all_reduce("data", compressor=CODE), optax.adam(1e-3))
PLAIN = optax.chain(relaxjax.all_reduce("data"), optax.adam(1e-3))
EVERY = 20  # steps from one look at the run to the next


class State(NamedTuple):
    """What a checkpoint holds; `owed` is added to the gradient of the next step."""

    params: Any
    opt_state: Any
    owed: Any


def step_of(tx: optax.GradientTransformation, loss: Callable, mesh: Any) -> Callable:
    """A step that computes in bfloat16; params, moments and residuals are float32."""

    def in_bfloat16(params, batch):
        low = jax.tree.map(
            lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x,
            (params, batch),
        )
        return jnp.float32(loss(*low))

    def train_step(params, opt_state, owed, batch):
        loss, grads = jax.value_and_grad(in_bfloat16)(params, batch)
        norm = optax.tree.norm(grads)
        grads = jax.tree.map(jnp.add, grads, owed)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (
            params,
            opt_state,
            optax.tree.zeros_like(owed),
            {
                "loss": loss,
                "gradient": norm,
            },
        )

    return relaxjax.data_parallel(train_step, mesh)


def health(state: State, metrics: Any, workers: int) -> dict[str, float]:
    """Numbers that any logger takes."""
    owed = optax.tree.get(state.opt_state, "residual", 0.0)
    return {
        "loss": float(metrics["loss"]),
        "owed": float(optax.tree.norm(owed))
        / workers**0.5
        / float(metrics["gradient"]),
        "spread": relaxjax.spread(state.params),
        "distance": relaxjax.consensus_distance(state.params),
    }


def begun(tx: optax.GradientTransformation, folder: Path, mesh: Any, params: Any):
    """Checkpoints of a chain, the last step and its state; 0 and a new state."""
    plan = checkpoint.plan_of(tx, params, mesh)
    saves = checkpoint.Checkpoints(folder, mesh, every=EVERY, keep=2, plan=plan)
    nothing = relaxjax.to_workers(optax.tree.zeros_like(params), mesh)
    step, state = saves.restore(State(*relaxjax.init(tx, params, mesh), nothing))
    return saves, step, state


def fall_back(state: State, fresh: State) -> State:
    """From RELAXED to PLAIN: the moments stay, and what workers owe comes next."""
    owed = optax.tree.get(state.opt_state, "residual")
    return State(state.params, (fresh.opt_state[0], state.opt_state[1]), owed)


def main(
    folder: Path,
    steps: int = 100,
    *,
    most_owed: float = 5.0,
    log: Callable[[int, dict[str, float]], None] = lambda step, numbers: None,
) -> float:
    """Trains, or goes on; returns the held-out accuracy."""
    team = hosts.join()
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    task = digits(seed=0)
    chains = {"relaxed": RELAXED, "plain": PLAIN}
    fell_back = any((folder / "plain").glob("[0-9]*"))  # has a checkpoint
    name = "plain" if fell_back else "relaxed"
    saves, first, state = begun(chains[name], folder / name, mesh, task.params)
    step = step_of(chains[name], task.loss, mesh)
    batches = rows_of(task, team, first)
    with hosts.Watch(team) as watch:
        for number in range(first, steps):
            batch = next(batches)
            if watch.stops_before(number):
                saves.save(number, state, now=True)
                break
            *now, metrics = step(*state, batch)
            state = State(*now)
            saves.save(number + 1, state)
            if (number + 1) % EVERY:
                continue
            numbers = health(state, metrics, mesh.size)
            log(number + 1, numbers)
            if name == "relaxed" and not numbers["owed"] <= most_owed:
                log(number + 1, {"falls back to all_reduce": 1.0})
                saves.close()
                name = "plain"
                saves, _, fresh = begun(PLAIN, folder / name, mesh, task.params)
                state = fall_back(state, fresh)
                step = step_of(PLAIN, task.loss, mesh)
                saves.save(number + 1, state, now=True)
    saves.close()
    return float(task.metric(relaxjax.consensus(state.params)))


def rows_of(task: Any, team: hosts.Hosts, first: int):
    """This process's rows of each batch, from the first step on."""
    processes = len(team.members)
    for number, batch in enumerate(task.batches(0, task.batch_size)):
        rows = task.batch_size // processes
        mine = slice(team.process_id * rows, (team.process_id + 1) * rows)
        if number >= first:
            yield jax.tree.map(lambda x, mine=mine: x[mine], batch)


def show(step: int, numbers: dict[str, float]) -> None:
    """A line of the log."""
    print(f"step {step}:", ", ".join(f"{k} {v:.3g}" for k, v in numbers.items()))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 4)  # emulated, where there is no GPU
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    accuracy = main(Path(folder), log=show)
    print(f"held-out accuracy {accuracy:.4f}")
