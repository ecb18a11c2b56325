"""Islands without threads: a store in memory, a clock by hand, and what they must do.

Every operation on the store may be the last of a process, may fail as on a full disk,
or may be where another process comes in between. What is written may lose its answer,
and a commit may come about after its writer was told that it had failed.
"""

import errno
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxjax.islands.carriers._remembered import Recorded, Remembered
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed, Settings
from relaxjax.islands.common._channel import Fragment, Offer
from relaxjax.islands.common._codes import Coder, Plain
from relaxjax.islands.common._files import fingerprint
from relaxjax.islands.common._members import Member
from relaxjax.islands.common._store_channel import StoreChannel
from relaxjax.islands.one._mail_thread import Voice
from relaxjax.merges import Rule, merged

SETTINGS = Settings(2, 2, "decoupled", "rda", 2, 1.0, 0.7, 0.9, 0, False)
PARAMS = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(5, np.float32)}
LOST_AFTER = 4.0


class Crash(BaseException):
    """The process is gone, in the middle of what it did."""


class Memory:
    """A store whose operations can be counted, made to fail, and interrupted."""

    place = carrier = "memory"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.fault = ""  # "full", "deaf", or "late"
        self.late: dict[str, bytes] = {}
        self.before: Callable[[str, str], None] = lambda verb, name: None

    def create(self, name: str, data: bytes) -> bool:
        self._writes("create", name)
        if self.fault == "late" and name.startswith(log.FOLDER):
            self.late.setdefault(name, data)
            raise TimeoutError
        won = self.files.setdefault(name, data) is data
        self._answers()
        return won

    def replace(self, name: str, data: bytes) -> None:
        self._writes("replace", name)
        self.files[name] = data
        self._answers()

    def arrive(self) -> None:
        """What was on its way is put, where nobody else was first."""
        self.files = self.late | self.files
        self.late = {}

    def read(self, name: str, most: int | None = None) -> bytes:
        self.before("read", name)
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        return self.files[name]

    def names(self, folder: str) -> list[str]:
        self.before("names", folder)
        rest = [x[len(folder) + 1 :] for x in self.files if x.startswith(f"{folder}/")]
        return sorted({x.partition("/")[0] for x in rest})

    def delete(self, name: str) -> None:
        self.before("delete", name)
        self.files.pop(name, None)

    def _writes(self, verb: str, name: str) -> None:
        self.before(verb, name)
        if self.fault == "full":
            raise OSError(errno.ENOSPC, "No space left on device", name)

    def _answers(self) -> None:
        if self.fault == "deaf":
            raise TimeoutError


class Process:
    """An island's process, as a test drives it."""

    def __init__(self, world: "World", name: str):
        self.world, self.said = world, []
        self.channel = StoreChannel(
            world.seen(),
            world.run,
            name,
            lost_after=LOST_AFTER,
            say=Voice(name, self.said.append).say,
            clock=lambda: world.now,
        )
        joined = self.channel.join(world.begins())
        self.member, self.joined = joined.member, joined.version
        code, seed = world.run.settings.compressor, world.run.settings.seed
        self.coder = Coder(code, seed, str(self.member)) if code else Plain()
        self.version, self.has = joined.version, dict[int, Fragment]()
        self.step = self.offered = 0
        self._take(joined.fragments)

    def adopt(self) -> None:
        news = self.channel.adopt()
        assert news.version >= self.version, "versions only grow"
        self.version = news.version
        self._take(news.fragments)

    def offer(
        self,
        tokens: float,
        steps: int,
        salt: int,
        ahead: bool = False,
        wrong: Callable[[Any], Any] = lambda move: move,
    ) -> bool:
        """Contributes what a seed says, from what it has taken over.

        An island that is ahead knows of a version whose arrays it has not got yet; one
        that is wrong makes something else of its move.
        """
        version = (log.newest(self.world.store) if ahead else self.version) + 1
        number = self.world.run.fragment_of(version)
        words = [salt, int(tokens), steps, *str(self.member).encode()]
        rng = np.random.default_rng(words)
        base = self.has[number]
        model = {
            k: a - wrong(rng.normal(size=a.shape).astype(np.float32))
            for k, a in base.anchor.items()
        }
        with np.errstate(over="ignore"):
            model = {k: x.astype(self.world.start[k].dtype) for k, x in model.items()}
        model = self.coder.encode(number, version, model)
        self.step += steps
        offer = Offer(
            version=version,
            base=base.version,
            model=model,
            tokens=tokens,
            steps=steps,
            step=self.step,
            adopted=[],
            joined=self.joined,
            dropped=0,
        )
        self.world.offers[fingerprint(model)] = self.member, offer
        self.world.sent[fingerprint(model), *self.member] = self.member, offer
        return self.channel.offer(offer)

    def turn(self) -> bool:
        return self.channel.syncer.turn()

    def _take(self, fragments: list[Fragment]) -> None:
        for fragment in fragments:
            before = self.has.get(fragment.number)
            assert before is None or before.version <= fragment.version
            self.has[fragment.number] = fragment
            self.coder.took(fragment, merged=False)
            bits = fingerprint(fragment.anchor)
            known = self.world.bits.setdefault(
                (fragment.number, fragment.version), bits
            )
            assert known == bits, "one version is the same bits for everybody"


class World:
    """A store, a clock, and a model of what may be in the log."""

    def __init__(
        self,
        settings: Settings = SETTINGS,
        store: Any = None,
        remembered: bool = False,
        params: Any = PARAMS,
    ):
        self.store, self.now = store or Memory(), 0.0
        self.recorded = Recorded(self.store) if remembered else None
        self.start, self.run = params, Agreed.of(settings, params)
        self.bits: dict[tuple[int, int], str] = {}
        self.offers: dict[str, tuple[Member, Offer]] = {}
        self.sent: dict[tuple[str, str, int], tuple[Member, Offer]] = {}
        self.anchors: dict[int, dict[str, np.ndarray]] = {}
        self.velocity: dict[str, np.ndarray] = {}
        self.checked = -1
        self.foreign: set[int] = set()  # numbers that are no versions
        self.merged: dict[int, int] = {}  # the newest version of each fragment
        self.before: dict[int, list[Any]] = {}  # lengths, weights; by fragment
        self.last: dict[tuple[int, str], Any] = {}  # and by island
        self.records: dict[int, bytes] = {}
        self.tokens = 0.0

    def seen(self) -> Any:
        """The store as a process has it; answers may be one operation old."""
        if self.recorded is None:
            return self.store
        ticks = itertools.count()
        return Remembered(self.recorded, 1.5, lambda: next(ticks))

    def arrive(self) -> None:
        """What was under way is put; a store that keeps a journal has begun again."""
        self.store.arrive()
        if self.recorded is not None:
            Recorded.__init__(self.recorded, self.store)

    def process(self, name: str) -> Process:
        return Process(self, name)

    def check(self) -> None:
        """What must hold of the log at any time."""
        self._checked_log()
        versions = [int(n) for n in self.store.names(log.FOLDER)]
        newest = log.newest(self.store)
        versions = [v for v in versions if v <= newest or v not in self.foreign]
        versions = [v for v in versions if v > newest - log.KEPT]
        oldest = max(0, newest - log.KEPT + 1)
        assert versions == list(range(oldest, newest + 1)), "versions have no gaps"
        assert self.checked >= oldest - 1, "a test looks before a line is removed"
        for version in range(self.checked + 1, newest + 1):
            if version not in self.foreign:
                self._follow(version)
        for version in set(versions[-self.run.settings.fragments :]) - self.foreign:
            for kinds in json.loads(self.records[version])["files"].values():
                names = {name for name, _ in kinds.values()}
                assert names <= self.store.files.keys(), "a version without its files"

    def _checked_log(self) -> None:
        for version, line in self.records.items():
            now = self.store.files.get(log.file_of(version), line)
            kept = version > self.checked - log.KEPT
            assert not kept or now == line, f"merge {version} has changed"

    def _follow(self, version: int) -> None:
        """Merges by hand what a record names, and compares."""
        record, _ = log.read(self.store, version)
        self.records[version] = self.store.files[log.file_of(version)]
        self.checked = version
        if version == 0:
            self.anchors = dict(enumerate(self.begins()))
            return
        number = self.run.fragment_of(version)
        base = self.merged.get(number, 0)
        parts = [self._sent(c) for c in record["contributions"]]
        members = [member for member, _ in parts]
        assert len(set(members)) == len(members), "twice in one merge"
        assert len({m.name for m in members}) == len(members), "two of one name"
        assert members == sorted(members), "contributors stand in order"
        left = [self._sent(c) for c in record.get("left_out", [])]
        behind = [why for _, why in record["refused"] if "its base is" in why]
        quorum = self.run.settings.quorum
        assert len(parts) + len(left) + len(behind) >= quorum
        out = self._out(number, sorted(parts + left, key=lambda part: part[0]))
        assert sorted(member for member, _ in left) == out
        for c, (member, offer) in zip(record["contributions"], parts, strict=True):
            assert (c["island"], c["incarnation"]) == member
            assert (c["tokens"], c["steps"]) == (offer.tokens, offer.steps)
            assert c["base"] == base, "merged twice, or from an old version"
            self.tokens += c["tokens"]
        self._merge(number, parts)
        self._forget(version, number, record)
        self.merged[number] = version
        kinds = record["files"][str(number)]
        bits = self.bits.setdefault((number, version), kinds["anchor"][1])
        assert bits == kinds["anchor"][1]
        self._same_anchor(number, kinds["anchor"][0])

    def _sent(self, said: Any) -> tuple[Member, Offer]:
        """Two that stand still may send the same."""
        return self.sent[said["sha256"], said["island"], said["incarnation"]]

    def begins(self) -> list[dict[str, np.ndarray]]:
        """The model of version 0, by fragment."""
        leaves = [np.float32(x) for _, x in sorted(self.start.items())]
        return self.run.split(leaves)

    def _out(self, number: int, parts: list[tuple[Member, Offer]]) -> list[Member]:
        """Who goes more than ten times as far as the median; notes what may count."""
        every = [(self._length(number, o), o.tokens**2 / o.steps) for _, o in parts]
        here = [one for one in every if np.isfinite(one[0])]
        last = [one for merge in self.before.get(number, [])[-4:] for one in merge]
        members = [one for (p, _), (_, one) in self.last.items() if p == number]
        last = members if len(members) > 2 else last
        groups = [np.median(g, axis=0) for g in (here, last) if len(g) > 2]
        few = [min([length for length, _ in here], default=0), np.inf]
        far, self.most = np.max(groups or [few], axis=0)
        if far == 0:
            whole = np.concatenate([a.ravel() for a in self.anchors[number].values()])
            far = max(np.linalg.norm(whole), np.sqrt(whole.size)) / 10
        pairs = zip(parts, every, strict=True)
        most = (self.run.settings.limit or np.inf) * far
        return [
            m
            for (m, _), (length, _) in pairs
            if not (np.isfinite(length) and length <= most)
        ]

    def _length(self, number: int, offer: Offer) -> float:
        anchor = self.anchors[number]
        far = [np.ravel(a - np.float64(offer.model[k])) for k, a in anchor.items()]
        return float(np.linalg.norm(np.concatenate(far)))

    def _forget(self, version: int, number: int, record: Any) -> None:
        """Keeps what was last merged of islands that are alive, or were lately."""
        files = [file.rpartition("/")[2] for file, _ in record["refused"]]
        heard = {name.partition(".")[0] for name in [*record["absent"], *files]}
        oldest = version - 3 * self.run.settings.fragments
        for (p, name), (v, one) in list(self.last.items()):
            v = version if v is None else v
            self.last[p, name] = v, one
            if p == number and v < oldest and name not in heard:
                del self.last[p, name]

    def _merge(self, number: int, parts: list[tuple[Member, Offer]]) -> None:
        """Length and direction in float64; Nesterov outside."""
        offers = [offer for _, offer in parts]
        if not offers:
            self.before.setdefault(number, []).append([])
            return
        w = np.array([o.tokens**2 / o.steps for o in offers])
        w = np.minimum(w, (self.run.settings.cap or np.inf) ** 2 * self.most)
        lengths = [self._length(number, o) for o in offers]
        had = list(zip(lengths, w, strict=True))
        self.before.setdefault(number, []).append(had)
        for (member, _), one in zip(parts, had, strict=True):
            self.last[number, member.name] = None, one
        moves = {
            name: np.stack([a - o.model[name] for o in offers])
            for name, a in self.anchors[number].items()
        }
        settings = self.run.settings
        if isinstance(settings.merge, Rule):
            # A move of 0 is one of rounding here, which has no direction.
            moves = {name: np.where(abs(d) < 1e-6, 0, d) for name, d in moves.items()}
            merge = merged(settings.merge, moves, w)
        else:
            merge = {name: _rda(w / w.sum(), d) for name, d in moves.items()}
        for name, a in self.anchors[number].items():
            along = np.asarray(merge[name], np.float64)
            mu, eta = settings.outer_momentum, settings.outer_rate
            v = mu * self.velocity.get(name, 0) + along
            self.velocity[name] = np.asarray(v)
            self.anchors[number][name] = a - eta * (along + mu * v)

    def _same_anchor(self, number: int, file: str) -> None:
        from relaxjax.islands.common._files import unpack

        if file in self.store.files:  # else it has been pruned
            _, arrays = unpack(file, self.store.files[file])
            for name, x in arrays.items():
                ours = self.anchors[number][name]
                np.testing.assert_allclose(x, ours, rtol=1e-4, atol=1e-4)


def _rda(w: np.ndarray, d: np.ndarray) -> np.ndarray:
    lengths = [np.linalg.norm(x) for x in d]
    unit = [x / r if r > 1e-5 else 0 * x for x, r in zip(d, lengths, strict=True)]
    mean = np.stack([p * x for p, x in zip(w, unit, strict=True)]).sum(axis=0)
    return w @ lengths * mean / (np.linalg.norm(mean) or 1)


def folders(world: World) -> dict[str, Any]:
    """Names of files by folder, to look at when a test fails."""
    found: dict[str, Any] = {}
    for name in sorted(world.store.files):
        found.setdefault(name.partition("/")[0], []).append(name)
    return found
