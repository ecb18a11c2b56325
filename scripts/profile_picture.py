"""Draws docs/pictures/profile.png: a step of two emulated workers, as it was profiled.

python scripts/profile_picture.py [--out FILE]

Prints what it ran on, and the names of all operations of relaxjax in the profile. Needs
the environment of scripts/check.py.
"""

import argparse
import os
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "profile.png"
WORKERS, WIDTH = 2, 256


def main() -> None:
    """Profiles a step, prints the names in it, and draws it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE)
    out = parser.parse_args().out
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={WORKERS}"
    import jax

    run = profiled()
    names = dict.fromkeys(s.name for s in run.spans if "relaxjax." in s.name)
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, {WORKERS} emulated workers")
    print(*names, sep="\n")
    run.save_png(out)


def profiled() -> Any:
    """A step of a layer of WIDTH x WIDTH whose gradients travel in 8 bits."""
    import jax
    import jax.numpy as jnp
    import optax

    import relaxjax
    from relaxjax.compression import error_feedback, quantize
    from relaxjax.schedule import record

    code = error_feedback(quantize(8))
    tx = relaxjax.all_reduce("data", compressor=code, algorithm="two_shot")

    def step(params: Any, state: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: ((x @ p["w"] + p["b"]) ** 2).mean())(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {}

    mesh = jax.make_mesh((WORKERS,), ("data",))
    params = {"w": jnp.ones((WIDTH, WIDTH)), "b": jnp.zeros(WIDTH)}
    start = relaxjax.init(tx, params, mesh)
    train = relaxjax.data_parallel(step, mesh, donate=False)
    return record(train, *start, jnp.ones((8, WIDTH)), steps=1)


if __name__ == "__main__":
    main()
