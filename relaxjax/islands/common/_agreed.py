"""What all islands of a run agree on: settings, and the model's leaves by fragment.

The first island writes `run.json`; the others compare, and an island with another
model or other settings is refused with the differences. It also says with which
versions of relaxjax and JAX the run began: an island that has others joins, and is
told. Versions of the common model count merges: merge
v = 1, 2, .. is that of fragment (v - 1) mod P, and version 0 is the start.
"""

import functools
import math
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._checks import (
    require_momentum,
    require_own_name_each,
    require_whole,
)
from relaxjax._core._tree import leaf_name, wide
from relaxjax.islands.carriers._foreign import LINE, MOST, DamagedFile, contents, shown
from relaxjax.islands.carriers._store import FILE, Store
from relaxjax.islands.common._codes import compressor_of, shapes
from relaxjax.islands.common._files import Arrays, seal, unseal
from relaxjax.islands.common._when_due import Rows, check_period, period_of, step_of
from relaxjax.local_updates import ExchangeSpec, deal
from relaxjax.merges import Rule, rule_of

MODES = ("decoupled", "rounds")
LARGEST = float(np.finfo(np.float32).max)
_PACKAGES = "packages"  # a key of `run.json` beside the settings


class Settings(NamedTuple):
    """How islands merge; see `relaxjax.islands.join`."""

    sync_every: int | Rows
    fragments: int
    mode: str
    merge: str | Rule
    quorum: int
    grace: float
    outer_rate: float
    outer_momentum: float
    seed: int
    keep: bool
    compressor: str = ""
    limit: float | None = 10.0
    cap: float | None = 2.0

    def step_of(self, version: int) -> int:
        """The step of the run at which a merge is contributed to."""
        return step_of(self.sync_every, self.fragments, version)

    def outer(self) -> optax.GradientTransformation:
        """The outer optimizer."""
        momentum = self.outer_momentum or None
        return optax.sgd(float(self.outer_rate), momentum=momentum, nesterov=True)

    def check(self) -> None:
        """ValueError with the first setting that is not one."""
        for name in ("fragments", "quorum"):
            require_whole("islands", name, getattr(self, name))
        require_whole("islands", "seed", self.seed, 0)
        if not isinstance(self.keep, bool):
            raise ValueError(f"islands: keep={self.keep!r} must be True or False")
        check_period(self.sync_every, self.fragments)
        if self.mode not in MODES:
            raise ValueError(
                f"islands: mode={self.mode!r} must be one of {', '.join(MODES)}: in "
                "rounds islands wait for a merge, decoupled they go on"
            )
        if not 0 <= self.grace <= LARGEST or not 0 < self.outer_rate <= LARGEST:
            raise ValueError(
                f"islands: grace={self.grace} must be seconds, 0 or more, and "
                f"outer_rate={self.outer_rate} above 0, both of them finite in float32"
            )
        for name in ("limit", "cap"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= LARGEST:
                raise ValueError(
                    f"islands: {name}={value} must be 1 or more times the median of "
                    "the contributions, or None for no bound"
                )
        require_momentum("islands: outer", self.outer_momentum)
        code = compressor_of(self.compressor) if self.compressor else None
        code = code if isinstance(self.merge, Rule) else None  # sums take any code
        ExchangeSpec("islands", "islands", code, merge=self.merge).reducer()

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Settings":
        """What `record` made; TypeError or ValueError for anything else."""
        merge = body.get("merge")
        rule = {"merge": rule_of(merge)} if isinstance(merge, Mapping) else {}
        return cls(**{**body, **rule})._replace(
            sync_every=period_of(body.get("sync_every"))
        )

    def record(self) -> dict[str, Any]:
        """What JSON has of it; older versions of relaxjax lack the last settings."""
        said = self._asdict()
        for name, default in self._field_defaults.items():
            if said[name] == default:
                del said[name]
        if isinstance(self.merge, Rule):
            said["merge"] = self.merge.record()
        if isinstance(self.sync_every, tuple):
            said["sync_every"] = [[*row] for row in self.sync_every]
        return said


class Leaf(NamedTuple):
    """One leaf of the model, and the fragment that it belongs to."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fragment: int


class Agreed(NamedTuple):
    """Settings and leaves, as every island has them."""

    settings: Settings
    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, settings: Settings, params: Any) -> "Agreed":
        """The run that an island with these params would begin."""
        settings.check()
        numbers = jax.tree.leaves(deal("islands", settings.fragments, None, params))
        named = [(leaf_name(path), x) for path, x in jax.tree.leaves_with_path(params)]
        require_own_name_each("islands", [name for name, _ in named])
        leaves = []
        for (name, x), number in zip(named, numbers, strict=True):
            if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
                raise ValueError(
                    f"islands: {name} is {jnp.result_type(x)}, and islands merge "
                    "floating-point params: keep other leaves out of them"
                )
            kind = str(jnp.result_type(x))
            if settings.compressor and kind == "float64":
                raise ValueError(
                    f"islands: {name} is float64, and compressor="
                    f"{settings.compressor!r} has codes of float32: leave it out, or "
                    "keep the params in float32"
                )
            leaves.append(Leaf(name, kind, tuple(np.shape(x)), number))
        return cls(settings, tuple(leaves))

    def agree(self, store: Store) -> str:
        """Writes `run.json`, or compares with what is there.

        Returns:
          How versions of packages differ from those that the run began with, or "".

        Raises:
          ValueError: another island has other settings or another model.
        """
        if store.create(FILE, seal({**self.record(), _PACKAGES: packages()})):
            return ""
        theirs = unseal(f"{store.place}/{FILE}", contents(store, FILE, LINE))
        began = theirs.pop(_PACKAGES, None)
        if said := self.differs(theirs):
            raise ValueError(
                f"islands: the run in {store.place} has begun otherwise: {said}. Give "
                "what it has, or take a new folder"
            )
        return _other_packages(began)

    def differs(self, theirs: Mapping[str, Any]) -> str:
        """How another's record differs, in words; "" if it does not."""
        bounds = {k: x for k, x in Settings._field_defaults.items() if x}
        mine, theirs = bounds | self.record(), {**bounds, **theirs}
        every = {**theirs, **mine}
        pairs = ((key, mine.get(key), theirs.get(key)) for key in every)
        return "; ".join(_difference(*pair) for pair in pairs if pair[1] != pair[2])

    def record(self) -> dict[str, Any]:
        """What JSON has of it."""
        leaves = [[*leaf[:2], list(leaf.shape), leaf.fragment] for leaf in self.leaves]
        return {**self.settings.record(), "leaves": leaves}

    @classmethod
    def read(cls, store: Store) -> "Agreed":
        """The run that has begun in a store."""
        name = f"{store.place}/{FILE}"
        body = unseal(name, contents(store, FILE, LINE))
        body.pop(_PACKAGES, None)
        try:
            leaves = tuple(Leaf(n, d, tuple(s), f) for n, d, s, f in body.pop("leaves"))
            run = cls(Settings.read(body), leaves)
            run.settings.check()
            run.require_leaves()
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise DamagedFile(name, str(error)) from error
        return run

    def require_leaves(self) -> None:
        """ValueError or TypeError with the first leaf that no model has."""
        for leaf in self.leaves:
            numbers = [*leaf.shape, leaf.fragment]
            are_whole = all(isinstance(n, int) and 0 <= n <= MOST for n in numbers)
            is_float = jnp.issubdtype(jnp.dtype(leaf.dtype), jnp.floating)
            is_one = are_whole and is_float and leaf.fragment < self.settings.fragments
            if not is_one or not isinstance(leaf.name, str):
                raise ValueError(f"{shown(tuple(leaf))} is no leaf of a model")

    def most(self, fragment: int) -> int:
        """Bytes that no file of a fragment has more of: its arrays twice, and words."""
        mine = tuple(leaf for leaf in self.leaves if leaf.fragment == fragment)
        code = self.settings.compressor
        sizes = (
            math.prod(x.shape) * jnp.dtype(x.dtype).itemsize
            for kind in ("anchor", "sent")
            for x in _shapes(mine, kind, code).values()
        )
        return 2 * sum(sizes) + LINE

    def fragment_of(self, version: int) -> int:
        """Which fragment merge `version` is of."""
        return (version - 1) % self.settings.fragments

    def newest(self, fragment: int, version: int) -> int:
        """The last version, up to this one, in which a fragment has been merged."""
        if version <= fragment:
            return 0
        return version - (version - 1 - fragment) % self.settings.fragments

    def split(self, leaves: list[Any]) -> list[dict[str, Any]]:
        """Values in the order of the leaves, for each fragment by name."""
        parts: list[dict[str, Any]] = [{} for _ in range(self.settings.fragments)]
        for leaf, value in zip(self.leaves, leaves, strict=True):
            parts[leaf.fragment][leaf.name] = value
        return parts

    def check(
        self, name: str, fragment: int, arrays: Mapping[str, np.ndarray], kind: str
    ) -> Arrays:
        """The arrays of a fragment, if that is what they are; else `DamagedFile`.

        Args:
          name: the file that they are from.
          fragment: the fragment's number.
          arrays: the arrays.
          kind: "anchor", in float32 where a param is narrower; or "sent", models in
            the params' dtypes, or their codes.
        """
        mine = tuple(leaf for leaf in self.leaves if leaf.fragment == fragment)
        expected = _shapes(mine, kind, self.settings.compressor)
        if list(expected) != list(arrays):
            raise DamagedFile(name, f"its arrays are not those of fragment {fragment}")
        for leaf, like in expected.items():
            x = arrays[leaf]
            if x.shape != like.shape or x.dtype != like.dtype:
                raise DamagedFile(
                    name,
                    f"{leaf} is {x.dtype}{list(x.shape)} instead of "
                    f"{like.dtype}{list(like.shape)}",
                )
        return dict(arrays)


@functools.cache
def _shapes(leaves: tuple[Leaf, ...], kind: str, compressor: str) -> Any:
    """Shapes and dtypes by name."""
    own = {x.name: jax.ShapeDtypeStruct(x.shape, jnp.dtype(x.dtype)) for x in leaves}
    anchor = {n: jax.ShapeDtypeStruct(x.shape, wide(x.dtype)) for n, x in own.items()}
    if kind == "anchor":
        return anchor
    return shapes(compressor, anchor) if compressor else own


def packages() -> dict[str, str]:
    """Versions of what merges are made with."""
    found = {"jax": jax.__version__}
    with suppress(PackageNotFoundError):  # a clone that is not installed
        found["relaxjax"] = version("relaxjax")
    return found


def _other_packages(began: Any) -> str:
    """How they differ from those that a run began with; older runs do not say."""
    said = began if isinstance(began, Mapping) else {}
    differ = [
        f"{name} {_said(said[name])}, and this island has {mine}"
        for name, mine in packages().items()
        if said.get(name, mine) != mine
    ]
    if not differ:
        return ""
    return (
        f"the run began with {' and with '.join(differ)}: a replay may differ by "
        "rounding from what was merged"
    )


def _difference(key: str, mine: Any, theirs: Any) -> str:
    if key != "leaves" or not isinstance(theirs, list):
        return f"{key} is {_said(mine)} here and {_said(theirs)} there"
    for one, other in zip(mine, theirs, strict=False):
        if one != other:
            return f"params have {one} here and {_said(other)} there"
    return f"params have {len(mine)} leaves here and {len(theirs)} there"


def _said(value: Any) -> str:
    """A value of a `run.json` in a message, a rule as the call that makes it."""
    if isinstance(value, Mapping):
        with suppress(ValueError):
            return repr(rule_of(value))
    return value if isinstance(value, str) and value.isprintable() else shown(value)
