"""An island: a runtime of its own that trains, contributes, and takes over.

Source: Decoupled DiLoCo (Douillard et al. 2026), as second-hand notes give it; the
mathematics is that of `relaxjax.local_updates.late._decoupled_diloco`. After each step
of its own optimizer, with c_p and s_p the tokens and steps since fragment p was taken
over:

    a newer a_p has arrived:           x_p <- a_p,  c_p = s_p = 0
    H / P steps since the last offer,
    or others wait for this one:       offer x_p, c_p, s_p to the next merge

In rounds an island waits there until the merge has come about; decoupled it goes on,
and what it moves until it takes the merge over is lost, as in the paper.

Cost: a copy of one fragment to the host every H / P steps, and one back to the device.
"""

import hashlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core.foreign._json import scalar
from relaxjax._core.foreign._switches import unswitched
from relaxjax.islands.carriers._foreign import is_tokens
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment, Joined, Mail, News, Offer
from relaxjax.islands.common._codes import Coder, Plain
from relaxjax.islands.common._files import Arrays
from relaxjax.islands.one._pace import Pace
from relaxjax.islands.one._together import on_host


class Sent(NamedTuple):
    """A contribution that may be merged.

    Attributes:
      version: the merge.
      tokens: tokens in it.
      said: how much of what was taken over it tells.
    """

    version: int
    tokens: float
    said: int


class Island:
    """An island that has joined; made by `relaxjax.islands.join`.

    Use it in a `with` statement, so that it leaves at the end.

    Attributes:
      params: the common model at the time of joining, like the params given.
      name: the island's name.
      incarnation: which process of that name this is, 1 or more.
      version: the newest version that has arrived; merges are counted from 1.
      seed: an int below 2^31 that differs for each name and incarnation.
      merged: tokens of this process that merges have, as far as it has heard; counted
        once for each fragment.
      dropped: tokens of this process that no merge will ever have: those since an
        offer when the merge was taken over, and those of offers that came too late;
        counted once for each fragment.
    """

    def __init__(
        self, run: Agreed, joined: Joined, params: Any, mail: Mail, pace: Pace
    ):
        self._run, self._mail, self._pace = run, mail, pace
        self._tree = jax.tree.structure(params)
        self.name, self.incarnation = joined.member
        self.version = self._joined = joined.version
        self.merged = self.dropped = 0.0
        self.seed = seed_of(run.settings.seed, str(joined.member))
        p = run.settings.fragments
        self._tokens, self._steps = [0.0] * p, [0] * p
        self._base = {f.number: f.version for f in joined.fragments}
        self._sent: dict[int, Sent] = {}  # by fragment
        self._step = self._last = self._offered = 0
        self._adopted: list[list[int]] = []
        self._known = 0  # how much of that the log has, and is no longer said
        code, member = run.settings.compressor, str(joined.member)
        self._coder = Coder(code, run.settings.seed, member) if code else Plain()
        for fragment in joined.fragments:
            self._coder.took(fragment, merged=False)
        self.params = self._over(params, joined.fragments)

    @property
    def first_step(self) -> int:
        """Where the run stood when this island joined: its version times H / P.

        Under a table of periods, the step at which that version was contributed to.
        """
        return self._run.settings.step_of(self._joined)

    def steps(self, count: int) -> Iterator[int]:
        """Numbers of steps from `first_step` to `count` - 1.

        An island that joins late, or again, so ends about when the others do.
        """
        yield from range(self.first_step, count)

    @unswitched()
    def exchange(self, params: Any, *, tokens: float = 1) -> Any:
        """The params to go on with, after a step; call it once after each.

        Args:
          params: the model after the optimizer's step, on this process's devices.
          tokens: what the step has taken in, such as examples or tokens; 0, or from
            2^-53 to 2^53.

        Returns:
          The params, in which fragments that were merged have been replaced.

        Raises:
          Superseded: a newer process of the same name has joined.
          ValueError: params unlike those that joined, or tokens out of range.
        """
        tokens = scalar(tokens)
        if not is_tokens(tokens):
            raise ValueError(
                f"islands: tokens={tokens} must be 0 or from 2^-53 to 2^53: "
                "what this step has taken in"
            )
        self._require_same(params)
        self._step += 1
        if tokens:
            self._tokens = [c + tokens for c in self._tokens]
            self._steps = [s + 1 for s in self._steps]
        news = self._mail.arrived()
        params = self._take(params, news)
        version, settings = news.version + 1, self._run.settings
        apart = settings.step_of(version) - settings.step_of(news.version)
        is_due = self._step - self._last >= apart or news.wanted
        if version > self._offered and is_due and self._can_offer(version):
            self._send(version, params)
            if settings.mode == "rounds":
                self._mail.wait_for(version)
                params = self._take(params, self._mail.arrived())
        self._pace.keep()
        return params

    def close(self) -> None:
        """Leaves the run; the others no longer wait for this island."""
        self._mail.close()

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
            sent, merged = self._sent.pop(p, None), 0.0
            has = sent is not None and sent.version in news.merged
            if sent is not None and has:
                merged, self._known = sent.tokens, max(self._known, sent.said)
            self._coder.took(fragment, merged=has)
            self.merged += merged
            self.dropped += self._tokens[p] - merged
            self._tokens[p], self._steps[p] = 0.0, 0
            self._base[p] = fragment.version
            self._adopted.append([fragment.version, self._step])
            self.version = max(self.version, fragment.version)
        return self._over(params, news.fragments) if news.fragments else params

    def _can_offer(self, version: int) -> bool:
        """Whether its fragment has moved, from the newest version that can be read."""
        return self._steps[self._run.fragment_of(version)] > 0

    def _send(self, version: int, params: Any) -> None:
        p = self._run.fragment_of(version)
        parts = self._run.split(jax.tree.leaves(params))
        own = {k: on_host(x).astype(jnp.result_type(x)) for k, x in parts[p].items()}
        self._mail.send(
            Offer(
                version=version,
                base=self._base[p],
                model=self._coder.encode(p, version, own),
                tokens=self._tokens[p],
                steps=self._steps[p],
                step=self._step,
                adopted=self._adopted[self._known :],
                joined=self._joined,
                dropped=self.dropped,
            )
        )
        self._offered, self._last = version, self._step
        self._sent[p] = Sent(version, self._tokens[p], len(self._adopted))

    def _over(self, params: Any, fragments: list[Fragment]) -> Any:
        """Params in which these fragments stand, where and as the params are."""
        new: Arrays = {}
        for fragment in fragments:
            new |= fragment.anchor
        leaves = [
            _like(new[leaf.name], x) if leaf.name in new else x
            for leaf, x in zip(self._run.leaves, jax.tree.leaves(params), strict=True)
        ]
        return self._tree.unflatten(leaves)

    def _require_same(self, params: Any) -> None:
        """Refuses another tree, dtype or shape than those that joined."""
        leaves, tree = jax.tree.flatten(params)
        if tree != self._tree:
            raise ValueError(
                f"islands: params are {tree}, and were {self._tree} when this island "
                "joined: give the same tree"
            )
        for leaf, x in zip(self._run.leaves, leaves, strict=True):
            dtype, shape = jnp.result_type(x), np.shape(x)
            if dtype != leaf.dtype or shape != leaf.shape:
                raise ValueError(
                    f"islands: {leaf.name} is {dtype}{list(shape)}, and was "
                    f"{leaf.dtype}{list(leaf.shape)} when this island joined, so that "
                    "nobody would merge it: cast the params after the step, "
                    "optax.tree.cast_like(params, island.params)"
                )


def seed_of(seed: int, member: str) -> int:
    """The seed of a process, of the run's seed and the process's name."""
    digest = hashlib.sha256(f"{seed} {member}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _like(anchor: np.ndarray, x: Any) -> Any:
    """An anchor in the dtype of a param, where that param is.

    It is committed to its device if the param is: else the next step would be compiled
    again.
    """
    value = anchor.astype(jnp.result_type(x))
    if not isinstance(x, jax.Array):
        return value
    if x.is_fully_addressable:
        return jax.device_put(value, x.sharding if x.committed else None)
    return jax.make_array_from_callback(x.shape, x.sharding, lambda part: value[part])
