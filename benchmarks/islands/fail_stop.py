"""A process of what stands beside islands: one JAX runtime, DiLoCo, and checkpoints.

If one process dies, all end, and whoever has started them starts them again, from the
last checkpoint. Same model, batches, pace, H and outer optimizer as the islands, and a
checkpoint as often as they merge.
"""

import functools
import os
import time
from itertools import count

import jax
import optax

import relaxjax
from benchmarks.islands import data, digits
from benchmarks.islands.diary import Diary
from benchmarks.islands.island import EVERY
from benchmarks.islands.setting import Setting
from relaxjax import checkpoint, hosts
from relaxjax.islands.one._pace import Pace


def main() -> None:
    """Meets the others, restores, and trains."""
    setting, folder = Setting.read()
    number = int(os.environ["JAX_PROCESS_ID"])
    diary = Diary(folder, f"island-{number}")
    team = hosts.join()
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    train, held_out = data.read(folder)
    inner, outer = optax.sgd(setting.rate), setting.outer()
    tx = relaxjax.diloco(inner, "data", sync_every=setting.sync_every, outer=outer)
    step = relaxjax.data_parallel(functools.partial(digits.train_step, tx=tx), mesh)
    pace = Pace(min(setting.pace_of(i) for i in range(setting.islands)))
    with hosts.Watch(team, lost_after=setting.lost_after) as watch:
        params = data.params_of(setting.seed, setting.width)
        state = tuple(relaxjax.init(tx, params, mesh))
        saves = checkpoint.Checkpoints(
            folder / "checkpoints", mesh, every=setting.every, keep=2
        )
        begun, state = saves.restore(state)
        steps = begun
        diary.write("joined", steps=begun)
        seed = setting.seed + 1000 * number + begun
        batches = data.batches(train, seed, setting.rows)
        for steps in count(begun):
            if watch.stops_before(steps):
                break
            began = time.monotonic()
            *new, metrics = step(*state, next(batches))
            state = tuple(new)
            jax.block_until_ready(metrics)
            if steps == begun:
                diary.write("compiled", seconds=time.monotonic() - began)
            if steps % EVERY == 0 or steps == begun:
                diary.write("step", steps=steps + 1, cpu=time.process_time())
            saves.save(steps + 1, state)
            pace.keep()
        saves.save(steps, state, now=True)
        saves.wait()
        mine = jax.tree.map(lambda x: x.addressable_shards[0].data[0], state[0])
        diary.write(
            "end", steps=steps, loss=float(digits.loss(mine, data.noisy(held_out, 0)))
        )


if __name__ == "__main__":
    main()
