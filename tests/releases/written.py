"""What a release writes: checkpoints, a log of islands, a study.

    python -m tests.releases.written FOLDER

ran with relaxjax 0.2.0 (commit 3febe0d) and 0.3.0 (13f5fef), and made the folders of
these names; the same calls read them. `NAME/after.npz` of each holds the params of
`MORE` further steps of that release.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from relaxjax import checkpoint, compare, compression, islands

WORKERS, STEPS, MORE = 4, 3, 4
ADAM = optax.adam(0.05)


def _coded(make: Callable[[Any], Any], bits: int = 4, **options: Any) -> Any:
    code = make(compression.quantize(bits))
    return relaxjax.all_reduce("data", compressor=code, **options)


CHAINS = {
    "all_reduce": lambda: optax.chain(relaxjax.all_reduce("data"), ADAM),
    "ef14": lambda: optax.chain(_coded(compression.error_feedback), ADAM),
    "ef21": lambda: optax.chain(_coded(compression.ef21), ADAM),
    "econtrol": lambda: optax.chain(_coded(compression.econtrol), ADAM),
    "loco": lambda: optax.chain(_coded(compression.loco), ADAM),
    "dgc": lambda: optax.chain(
        relaxjax.deep_gradient_compression("data", density=0.25, warmup_steps=None),
        optax.sgd(0.05),
    ),
    "dgc_warm": lambda: optax.chain(
        relaxjax.deep_gradient_compression("data", density=0.25, warmup_steps=8),
        optax.sgd(0.05),
    ),
    "power_sgd": lambda: optax.chain(
        relaxjax.power_sgd("data", rank=1, start_after=2), ADAM
    ),
    "acp_sgd": lambda: optax.chain(relaxjax.acp_sgd("data", rank=1), ADAM),
    "delay": lambda: optax.chain(relaxjax.delay(2), relaxjax.all_reduce("data"), ADAM),
    "accumulate": lambda: relaxjax.accumulate(
        optax.chain(relaxjax.all_reduce("data"), ADAM), every=2
    ),
    "one_bit_adam": lambda: relaxjax.one_bit_adam("data", 0.05, freeze_step=2),
    "local_sgd": lambda: optax.chain(ADAM, relaxjax.local_sgd("data", 2)),
    "diloco": lambda: relaxjax.diloco(ADAM, "data", 2),
    "streaming_diloco": lambda: relaxjax.streaming_diloco(ADAM, "data", 4),
    "slow_momentum": lambda: optax.chain(ADAM, relaxjax.slow_momentum("data", 2)),
    "gossip": lambda: optax.chain(
        ADAM, relaxjax.gossip("data", relaxjax.topology.ring(WORKERS))
    ),
    "choco": lambda: optax.chain(
        ADAM,
        relaxjax.gossip(
            "data",
            relaxjax.topology.ring(WORKERS),
            compressor=compression.quantize(4),
        ),
    ),
}


def params() -> Any:
    return {"v": jnp.linspace(-1, 1, 4), "w": jnp.linspace(-1, 1, 24).reshape(6, 4)}


def batch(step: int) -> Any:
    """[workers, 6], other numbers for each step and worker."""
    numbers = np.sin(np.arange(WORKERS * 6) * (step + 1)).reshape(WORKERS, 6)
    return jnp.asarray(numbers, jnp.float32)


def step_of(tx: Any, mesh: Any) -> Any:
    def loss_of(params: Any, x: Any) -> Any:
        return jnp.mean((x @ params["w"] - params["v"]) ** 2)

    def train_step(params: Any, opt_state: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    return relaxjax.data_parallel(train_step, mesh)


def trained(tx: Any, mesh: Any, state: Any, start: int, stop: int) -> Any:
    step = step_of(tx, mesh)
    for number in range(start, stop):
        *state, _ = step(*state, batch(number))
    return state


def write_checkpoint(name: str, folder: Path) -> None:
    tx, mesh = CHAINS[name](), relaxjax.emulate(WORKERS)
    state = trained(tx, mesh, relaxjax.init(tx, params(), mesh), 0, STEPS)
    saves = checkpoint.Checkpoints(folder / "checkpoints", mesh, every=1, keep=1)
    saves.save(STEPS, {"state": state, "batches": STEPS})
    saves.close()
    np.savez(folder / "before.npz", *jax.tree.leaves(state))
    now, _ = trained(tx, mesh, state, STEPS, STEPS + MORE)
    np.savez(folder / "after.npz", v=now["v"], w=now["w"])


def write_islands(folder: Path, steps: int, **options: Any) -> Any:
    """One island that merges with itself, in codes; the model behind its last step."""
    with islands.join(
        params(),
        f"folder:{folder}",
        "alone",
        sync_every=4,
        fragments=2,
        mode="rounds",
        keep=True,
        compressor="quantize8+ef14",
        **options,
    ) as island:
        model = island.params
        for step in island.steps(steps):
            model = jax.tree.map(lambda x, s=step: x + 0.1 * jnp.sin(x + s), model)
            model = island.exchange(model, tokens=32)
    return model


STUDY = {"plain": "all_reduce", "local": "local_sgd sync_every=4"}


def study() -> Any:
    return compare.Study(
        "digits", STUDY, seeds=2, tune=1, workers=2, steps=12, networks=[]
    )


def main(folder: Path) -> None:
    for name in CHAINS:
        (folder / name).mkdir(parents=True)
        write_checkpoint(name, folder / name)
    model = write_islands(folder / "islands", 8)
    np.savez(folder / "islands.npz", v=model["v"], w=model["w"])
    study().run(folder / "study")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
