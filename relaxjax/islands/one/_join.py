"""Joins a run of islands: what a script gives, or its environment says."""

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._tree import wide
from relaxjax._core.foreign._json import scalar
from relaxjax._core.foreign._switches import unswitched
from relaxjax.islands.carriers._open import CARRIER, open_store
from relaxjax.islands.common._agreed import Agreed, Settings
from relaxjax.islands.common._channel import Joined, Mail
from relaxjax.islands.common._names import STARTED, own_name
from relaxjax.islands.common._store_channel import StoreChannel
from relaxjax.islands.common._when_due import period_of
from relaxjax.islands.one._island import Island
from relaxjax.islands.one._mail_thread import Post, Voice
from relaxjax.islands.one._pace import Pace
from relaxjax.islands.one._past import MEMBER, past
from relaxjax.islands.one._read_settings import require_read_settings
from relaxjax.islands.one._together import enter, on_host
from relaxjax.merges import Rule, clipped

_MERGE = clipped("all")


@unswitched()
def join(
    params: Any,
    carrier: str | None = None,
    name: str | None = None,
    *,
    sync_every: int | Sequence[tuple[int, int]] = 24,
    fragments: int = 4,
    mode: str = "decoupled",
    merge: str | Rule = _MERGE,
    quorum: int = 1,
    grace: float = 1.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    seed: int = 0,
    keep: bool = False,
    compressor: str = "",
    limit: float | None = 10.0,
    cap: float | None = 2.0,
    lost_after: float = 5.0,
    poll: float = 0.05,
    pace: float | None = None,
) -> Island:
    """Joins a run of islands: processes that train apart, and merge without waiting.

    Experimental: this may change in any release.

    An island may be several processes of a JAX runtime of its own (`hosts.join()`, or
    `jax.distributed.initialize()`, comes first): each of them calls `join` and
    `exchange` alike, and process 0 talks to the carrier.

    Args:
      params: the model, floating-point arrays; every island gives the same shapes. The
        first one's values begin the run, and all others take them over. In an island of
        several processes, arrays of its whole mesh, replicated or in slices, or the
        same values in each.
      carrier: "folder:DIR", a folder that all islands see; "bucket:URL", as in
        bucket:s3://name/prefix; or "ray:DIR", a folder on a node of a Ray cluster.
        None: the environment variable RELAXJAX_CARRIER, which `relaxjax islands` sets.
      name: 1 to 64 letters, digits, _ or -; one for each island, the same after a
        restart. None: RELAXJAX_ISLAND, or a number of SLURM's or Kubernetes's.
      sync_every: H, the number of steps from one merge of a fragment to its next; or
        rows (step, H), from step 0 on: the period from that step of the run on.
      fragments: P, the number of parts that merge by turns; H is a multiple of it.
      mode: "decoupled", or "rounds": whoever has offered waits for the merge.
      merge: a rule of `relaxjax.merges`, for each fragment by itself: by default
        `merges.clipped("all")`; or "rda" or "mean", as in `relaxjax.decoupled_diloco`.
      quorum: K, the least number of contributions to a merge.
      grace: seconds that a merge with its quorum waits for others that are alive.
      outer_rate: learning rate of the outer SGD.
      outer_momentum: its Nesterov momentum, in [0, 1).
      seed: begins `Island.seed`.
      keep: keep all contributions and versions, to merge them again.
      compressor: what contributions travel in, and how what that loses comes back, as
        in "quantize8+ef14"; names are those of `relaxjax train --help`. "": floats.
      limit: a contribution that moves more than so many times as far as the median is
        left out of its merge, and named; None: however far it moves.
      cap: a contribution weighs up to cap^2 times the median R of tokens^2 / steps: of
        s steps, up to cap sqrt(R s) tokens count; None: all of them.
      lost_after: seconds without a heartbeat after which nobody waits for an island,
        and another takes its lease.
      poll: seconds between two looks at the carrier.
      pace: steps per second that this island keeps to, so that the death of another
        on the same machine makes it no faster; None: as many as it can.

    Returns:
      The island; its `params` are the common model.

    Raises:
      TypeError: `sync_every` is a function, on which islands cannot agree.
      ValueError: an argument that is not one; a run that has begun with other settings
        or another model; a folder where commits are not safe; a variable of JAX's that
        the script sets in a spare process.

    Example:
      >>> import tempfile, jax.numpy as jnp
      >>> from relaxjax import islands
      >>> folder = tempfile.TemporaryDirectory()
      >>> with islands.join(
      ...     {"x": jnp.zeros(2)},
      ...     f"folder:{folder.name}/run",
      ...     "alone",
      ...     sync_every=2,
      ...     fragments=1,
      ...     mode="rounds",
      ...     outer_rate=1.0,
      ...     outer_momentum=0.0,
      ... ) as island:
      ...     params = island.params
      ...     for step in island.steps(4):
      ...         params = {"x": params["x"] + 1}  # your train step
      ...         params = island.exchange(params, tokens=32)
      >>> print(island.version, params["x"])
      2 [4. 4.]
      >>> folder.cleanup()
    """
    lost_after, poll, pace = map(scalar, (lost_after, poll, pace))
    period = period_of(jax.tree.map(scalar, sync_every))
    given = (
        period, fragments, mode, merge, quorum, grace, outer_rate,
        outer_momentum, seed, keep, compressor, limit, cap,
    )  # fmt: skip
    settings = Settings(*map(scalar, given))
    require_read_settings()
    if not 0 < lost_after < float("inf") or not 0 < poll < float("inf"):
        raise ValueError(
            f"islands: lost_after={lost_after} and poll={poll} must be seconds above 0"
        )
    run = Agreed.of(settings, params)
    start = run.split([_wide(x) for x in jax.tree.leaves(params)])

    def begin() -> tuple[Joined, Mail]:
        """Joins, as the only process of an island that talks to the carrier."""
        store = open_store(carrier or os.environ.get(CARRIER, ""))
        if member := os.environ.get(MEMBER):
            before = past(store, run, member)
            return before.joined(), before
        voice = Voice(name or own_name())
        details = {"pace": pace, "started": os.environ.get(STARTED, "")}
        channel = StoreChannel(
            store,
            run,
            voice.name,
            lost_after=lost_after,
            say=voice.say,
            details=details,
        )
        joined = channel.join(start)
        post = Post(channel, voice, poll, joined.version)
        post.start()
        return joined, post

    keeper = Pace(None if MEMBER in os.environ else pace)  # what is replayed hurries
    joined, mail = enter(begin, run)
    return Island(run, joined, params, mail, keeper)


def _wide(x: Any) -> np.ndarray:
    return on_host(x).astype(wide(jnp.result_type(x)))
