"""An island of the chaos benchmark: trains until it is ended, and keeps a diary."""

import functools
import os
import time
from itertools import count

import jax
import optax

from benchmarks.islands import data, digits
from benchmarks.islands.diary import Diary
from benchmarks.islands.setting import Setting
from benchmarks.islands.wrong_ways import SECONDS, SOUND, WAYS, Way, way_of
from relaxjax import islands

EVERY = 10  # steps from one line of the diary to the next


def main() -> None:
    """Compiles, joins, and trains."""
    setting, folder = Setting.read()
    name = os.environ["RELAXJAX_ISLAND"]
    diary, number = Diary(folder, name), int(name.rpartition("-")[2])
    train, _ = data.read(folder)
    params = data.params_of(setting.seed, setting.width)
    tx = optax.sgd(setting.rate)
    began = time.monotonic()
    step = jax.jit(functools.partial(digits.train_step, tx=tx))
    first = next(data.batches(train, 0, setting.rows))
    jax.block_until_ready(step(params, tx.init(params), first))
    diary.write("compiled", seconds=time.monotonic() - began)
    with islands.join(
        params,
        sync_every=setting.sync_every,
        fragments=setting.fragments,
        grace=setting.grace,
        lost_after=setting.lost_after,
        poll=setting.poll,
        pace=setting.pace_of(number),
        seed=setting.seed,
        keep=True,
        merge=setting.rule(),
        limit=setting.limit,
        cap=setting.cap,
    ) as island:
        is_wrong = setting.has_wrong and number == setting.islands - 1
        way = WAYS[way_of(island.incarnation)] if is_wrong else Way()
        if way.rate != 1:
            tx = optax.sgd(way.rate * setting.rate)
            step = jax.jit(functools.partial(digits.train_step, tx=tx))
        diary.write("joined", incarnation=island.incarnation, version=island.version)
        params, opt_state = island.params, tx.init(params)
        batches = data.batches(train, island.seed, setting.rows)
        for steps in count(1):
            params, opt_state, _ = step(params, opt_state, next(batches))
            merged = island.merged
            if steps > SOUND * setting.pace:
                params = way.params(params)
            params = island.exchange(params, tokens=setting.rows * way.tokens)
            if is_wrong and steps > SECONDS * setting.pace:
                raise SystemExit(1)
            if island.merged != merged or steps % EVERY == 1:
                diary.write(
                    "step",
                    incarnation=island.incarnation,
                    steps=steps,
                    merged=island.merged,
                    dropped=island.dropped,
                    cpu=time.process_time(),
                )


if __name__ == "__main__":
    main()
