"""An island: a runtime of its own that trains, contributes, and takes over.

Source: Decoupled DiLoCo (Douillard et al. 2026), as second-hand notes give it; the
mathematics is that of `relaxjax.local_updates._decoupled_diloco`. After each step of
its own optimizer, with c_p and s_p the tokens and steps since fragment p was taken
over:

    a newer a_p has arrived:           x_p <- a_p,  c_p = s_p = 0
    H / P steps since the last offer,
    or others wait for this one:       offer x_p, c_p, s_p to the next merge

In rounds an island waits there until the merge has come about; decoupled it goes on,
and what it moves until it takes the merge over is lost, as in the paper.

Cost: a copy of one fragment to the host every H / P steps, and one back to the device.
"""

import hashlib
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import jax
import numpy as np

from relaxjax._core._tree import wide
from relaxjax.islands._channel import Fragment, News, Offer
from relaxjax.islands._files import Arrays
from relaxjax.islands._post import Post, Voice
from relaxjax.islands._run import Run, Settings
from relaxjax.islands._store import Folder
from relaxjax.islands._store_channel import StoreChannel

CARRIER, NAME = "RELAXJAX_CARRIER", "RELAXJAX_ISLAND"
_NUMBERS = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")


class Island:
    """An island that has joined; made by `relaxjax.islands.join`.

    Use it in a `with` statement, so that it leaves at the end.

    Attributes:
      params: the common model at the time of joining, like the params given.
      name: the island's name.
      incarnation: which process of that name this is, 1 or more.
      version: the newest version that has arrived; merges are counted from 1.
      seed: an int below 2^31 that differs for each name and incarnation.
      dropped: tokens of this process that no merge will ever have: those since an
        offer when the merge was taken over, and those of offers that came too late.
    """

    def __init__(self, run: Run, channel: StoreChannel, params: Any, how: Any):
        voice, poll = how
        self._run = run
        self._leaves, self._tree = jax.tree.flatten(params)
        joined = channel.join(run.split([_wide(x) for x in self._leaves]))
        self.name, self.incarnation = joined.member
        self.version = self._joined = joined.version
        self.dropped = 0.0
        self.seed = _seed(run.settings.seed, str(joined.member))
        p = run.settings.fragments
        self._tokens, self._steps = [0.0] * p, [0] * p
        self._base = {f.number: f.version for f in joined.fragments}
        self._sent: dict[int, tuple[int, float]] = {}  # by fragment: version, tokens
        self._step = self._last = self._offered = 0
        self._adopted: list[list[int]] = []
        self.params = self._over(params, joined.fragments)
        self._post = Post(channel, voice, poll, joined.version)
        self._post.start()

    @property
    def first_step(self) -> int:
        """Where the run stood when this island joined: its version times H / P."""
        return self._joined * self._run.settings.every

    def steps(self, count: int) -> Iterator[int]:
        """Numbers of steps from `first_step` to `count` - 1.

        An island that joins late, or again, so ends about when the others do.
        """
        yield from range(self.first_step, count)

    def exchange(self, params: Any, *, tokens: float = 1) -> Any:
        """The params to go on with, after a step; call it once after each.

        Args:
          params: the model after the optimizer's step, on this process's devices.
          tokens: what the step has taken in, such as examples or tokens; 0 or more.

        Returns:
          The params, in which fragments that were merged have been replaced.

        Raises:
          Superseded: a newer process of the same name has joined.
          ValueError: params unlike those that joined, or tokens below 0.
        """
        if not 0 <= tokens < float("inf"):
            raise ValueError(f"islands: tokens={tokens} must be finite, and 0 or more")
        self._step += 1
        if tokens:
            self._tokens = [c + tokens for c in self._tokens]
            self._steps = [s + 1 for s in self._steps]
        news = self._post.arrived()
        params = self._take(params, news)
        version, settings = news.version + 1, self._run.settings
        is_due = self._step - self._last >= settings.every or news.wanted
        if version > self._offered and is_due and self._can_offer(version):
            self._send(version, params)
            if settings.mode == "rounds":
                self._post.wait_for(version)
                params = self._take(params, self._post.arrived())
        return params

    def close(self) -> None:
        """Leaves the run; the others no longer wait for this island."""
        self._post.close()

    def __enter__(self) -> "Island":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, params: Any, news: News) -> Any:
        """Params with what has arrived."""
        for fragment in news.fragments:
            p = fragment.number
            version, sent = self._sent.pop(p, (None, 0.0))
            self.dropped += self._tokens[p] - (sent if version in news.merged else 0.0)
            self._tokens[p], self._steps[p] = 0.0, 0
            self._base[p] = fragment.version
            self._adopted.append([fragment.version, self._step])
            self.version = max(self.version, fragment.version)
        return self._over(params, news.fragments) if news.fragments else params

    def _can_offer(self, version: int) -> bool:
        """Whether its fragment has moved from the newest version that there is."""
        p = self._run.fragment_of(version)
        newest = self._run.newest(p, version - 1)
        return self._steps[p] > 0 and self._base[p] == newest

    def _send(self, version: int, params: Any) -> None:
        p = self._run.fragment_of(version)
        parts = self._run.split(self._same(params))
        model = {name: np.array(x) for name, x in parts[p].items()}
        self._post.send(
            Offer(
                version=version,
                base=self._base[p],
                model=model,
                tokens=self._tokens[p],
                steps=self._steps[p],
                step=self._step,
                adopted=list(self._adopted),
                joined=self._joined,
                dropped=self.dropped,
            )
        )
        self._offered, self._last = version, self._step
        self._sent[p] = version, self._tokens[p]

    def _over(self, params: Any, fragments: list[Fragment]) -> Any:
        """Params in which these fragments stand, where and as the params are."""
        new: Arrays = {}
        for fragment in fragments:
            new |= fragment.anchor
        leaves = [
            _like(new[leaf.name], x) if leaf.name in new else x
            for leaf, x in zip(self._run.leaves, self._same(params), strict=True)
        ]
        return self._tree.unflatten(leaves)

    def _same(self, params: Any) -> list[Any]:
        leaves, tree = jax.tree.flatten(params)
        if tree != self._tree:
            raise ValueError(
                f"islands: params are {tree}, and were {self._tree} when this island "
                "joined: give the same tree"
            )
        return leaves


def join(
    params: Any,
    carrier: str | None = None,
    name: str | None = None,
    *,
    sync_every: int = 24,
    fragments: int = 4,
    mode: str = "decoupled",
    merge: str = "rda",
    quorum: int = 1,
    grace: float = 1.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    seed: int = 0,
    keep: bool = False,
    lost_after: float = 5.0,
    poll: float = 0.05,
) -> Island:
    """Joins a run of islands: processes that train apart, and merge without waiting.

    Experimental: this may change in any release.

    Args:
      params: the model, floating-point arrays; every island gives the same shapes. The
        first one's values begin the run, and all others take them over.
      carrier: "folder:DIR", a folder that all islands see; None: the environment
        variable RELAXJAX_CARRIER, which `relaxjax islands` sets.
      name: 1 to 64 letters, digits, _ or -; one for each island, the same after a
        restart. None: RELAXJAX_ISLAND, or a number of SLURM's or Kubernetes's.
      sync_every: H, the number of steps from one merge of a fragment to its next.
      fragments: P, the number of parts that merge by turns; H is a multiple of it.
      mode: "decoupled", or "rounds": whoever has offered waits for the merge.
      merge: "rda" or "mean", as in `relaxjax.decoupled_diloco`.
      quorum: K, the least number of contributions to a merge.
      grace: seconds that a merge with its quorum waits for others that are alive.
      outer_rate: learning rate of the outer SGD.
      outer_momentum: its Nesterov momentum, in [0, 1).
      seed: begins `Island.seed`.
      keep: keep all contributions and versions, to merge them again.
      lost_after: seconds without a heartbeat after which nobody waits for an island,
        and another takes its lease.
      poll: seconds between two looks at the carrier.

    Returns:
      The island; its `params` are the common model.

    Raises:
      ValueError: an argument that is not one; a run that has begun with other settings
        or another model; a folder where commits are not safe.

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
    settings = Settings(
        sync_every, fragments, mode, merge, quorum, grace, outer_rate, outer_momentum,
        seed, keep,
    )  # fmt: skip
    if not 0 < lost_after < float("inf") or not 0 < poll < float("inf"):
        raise ValueError(
            f"islands: lost_after={lost_after} and poll={poll} must be seconds above 0"
        )
    if jax.process_count() > 1:
        raise ValueError(
            f"islands: this process is one of {jax.process_count()} of a JAX runtime, "
            "and an island is one process: join before jax.distributed.initialize, or "
            "run each process as an island"
        )
    run = Run.of(settings, params)
    store = open_store(carrier or os.environ.get(CARRIER, ""))
    voice = Voice(name or _name())
    channel = StoreChannel(store, run, voice.name, lost_after=lost_after, say=voice.say)
    return Island(run, channel, params, (voice, poll))


def open_store(carrier: str) -> Folder:
    """The store that a carrier names, as in "folder:runs/x".

    Raises:
      ValueError: it names none.
    """
    kind, _, place = carrier.partition(":")
    if kind != "folder" or not place:
        raise ValueError(
            f"islands: carrier={carrier!r} must be folder:DIR, a folder that all "
            "islands see; `relaxjax islands` sets RELAXJAX_CARRIER for its processes"
        )
    return Folder(place)


def _name() -> str:
    if name := os.environ.get(NAME):
        return name
    for variable in _NUMBERS:
        if number := os.environ.get(variable):
            return f"island-{number}"
    raise ValueError(
        "islands: name is missing: give one for each island, the same after a restart, "
        f"or set {NAME}; `relaxjax islands` does"
    )


def _seed(seed: int, member: str) -> int:
    digest = hashlib.sha256(f"{seed} {member}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _wide(x: Any) -> np.ndarray:
    return np.array(x, wide(x.dtype))


def _like(anchor: np.ndarray, x: Any) -> Any:
    """An anchor in the dtype of a param, where that param is."""
    value = anchor.astype(x.dtype)
    return jax.device_put(value, x.sharding) if isinstance(x, jax.Array) else value
