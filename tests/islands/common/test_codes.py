"""Contributions in codes: what travels, what comes back, and what is refused."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax.islands import Folder, replay
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment, Joined, News, Offer
from relaxjax.islands.common._codes import Coder, compressor_of, decoded, shapes
from relaxjax.islands.common._files import DamagedFile
from relaxjax.islands.common._members import Member
from relaxjax.islands.one._island import Island
from relaxjax.islands.one._pace import Pace
from relaxjax.islands.one._past import published
from tests.islands.one.test_island import RATE, TARGETS, H, together
from tests.islands.world import PARAMS, SETTINGS, World

CODES = ["bf16", "quantize4+ef14", "quantize4+loco", "sign+ef14", "top_k+ef14"]
RANDOM = ["stochastic4+ef14", "random_k+ef14", "drive"]


def anchor_of(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = {"a": (6, 5), "b": (7,), "none": (0,)}
    return {k: rng.normal(size=s).astype("f4") for k, s in shape.items()}


def moved(anchor: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    return {k: a - 0.1 * anchor_of(seed)[k] for k, a in anchor.items()}


@pytest.mark.few(8)
@pytest.mark.long
@pytest.mark.parametrize("name", CODES + RANDOM)
def test_all_that_was_lost_comes_back(name):
    """Round by round: with error feedback, merged c + e = the merged g."""
    coder, anchor = Coder(name, 3, "a.000001"), anchor_of(0)
    coder.took(Fragment(0, 0, anchor), merged=False)
    sent = {k: np.zeros_like(a) for k, a in anchor.items()}
    moves = {k: np.zeros_like(a) for k, a in anchor.items()}
    for version in range(1, 9):
        model, is_merged = moved(anchor, version), version % 3 != 0
        arrays = coder.encode(0, version, model)
        found = decoded(name, 3, version, anchor, arrays)
        like = shapes(name, anchor)
        assert {k: (x.shape, x.dtype) for k, x in arrays.items()} == {
            k: (x.shape, x.dtype) for k, x in like.items()
        }
        if is_merged:
            sent = {k: x + (anchor[k] - found[k]) for k, x in sent.items()}
            moves = {k: x + (anchor[k] - model[k]) for k, x in moves.items()}
        anchor = anchor_of(version)
        coder.took(Fragment(0, version, anchor), merged=is_merged)
    for k, x in sent.items():
        if name.endswith("ef14"):
            residual = np.reshape(coder._memory[0][k].residual, x.shape)
            np.testing.assert_allclose(x + residual, moves[k], atol=1e-5)
        else:
            assert np.abs(x - moves[k]).max(initial=0) < 0.7


@pytest.mark.long
def test_codes_are_those_of_the_compressor():
    """Of what has moved and was lost before, leaf by leaf."""
    coder, anchor = Coder("quantize4+ef14", 0, "a.000001"), anchor_of(0)
    coder.took(Fragment(0, 0, anchor), merged=False)
    plain = compression.quantize(4)
    lost = {k: np.zeros(a.size, np.float32) for k, a in anchor.items()}
    for version in (1, 2):
        model = moved(anchor, version)
        found = decoded(
            "quantize4+ef14", 0, version, anchor, coder.encode(0, version, model)
        )
        for k, a in anchor.items():
            p = (a - model[k]).ravel() + lost[k]
            c = np.asarray(compression.roundtrip(plain, jnp.asarray(p)))
            lost[k] = p - c
            np.testing.assert_allclose(found[k].ravel(), a.ravel() - c, atol=1e-6)
        coder.took(Fragment(0, version, anchor), merged=True)


def test_rounding_at_random_differs_from_island_to_island():
    anchor = anchor_of(0)
    model, codes = moved(anchor, 1), []
    for member in ("a.000001", "b.000001", "a.000002"):
        coder = Coder("stochastic4", 0, member)
        coder.took(Fragment(0, 0, anchor), merged=False)
        codes += [coder.encode(0, v, model)["a#0"].tobytes() for v in (1, 2, 1)]
    assert codes[0] == codes[2]
    assert len(set(codes)) == 6


@pytest.mark.parametrize(
    "name", ["quantize", "quantize8+ef21", "quantize8+ef14+ef14", "+ef14", "", 8]
)
def test_what_is_no_compressor_is_refused(name):
    with pytest.raises(ValueError, match=r"as in 'quantize8\+ef14', with one of .*top"):
        compressor_of(name)


def test_params_in_float64_are_refused():
    settings = SETTINGS._replace(compressor="quantize8")
    params = {"a": np.zeros(3), "b": np.zeros(3, np.float32)}
    why = "a is float64, and compressor='quantize8'"
    with jax.enable_x64(True), pytest.raises(ValueError, match=why):
        Agreed.of(settings, params)


def test_an_island_with_another_compressor_is_refused():
    """Also one without, and a run of before there were compressors is one without."""
    world = World()
    run = Agreed.of(SETTINGS._replace(compressor="quantize8"), PARAMS)
    assert "compressor" not in world.run.record()
    world.run.agree(world.store)
    with pytest.raises(ValueError, match="compressor is quantize8 here and None there"):
        run.agree(world.store)
    other = World()
    run.agree(other.store)
    assert Agreed.read(other.store) == run
    with pytest.raises(ValueError, match="compressor is None here and quantize8 there"):
        other.run.agree(other.store)


def test_codes_that_stand_for_nan_are_refused(monkeypatch):
    """The bits of bfloat16 are integers, which are finite."""
    world = World(SETTINGS._replace(compressor="bf16"))
    process = world.process("a")
    encode = functools.partial(_poisoned, process.coder.encode)
    monkeypatch.setattr(process.coder, "encode", encode)
    assert process.offer(8, 2, 0)
    for _ in range(2):  # the first takes the lease
        process.turn()
    assert any("a is not finite" in words for words in process.said)


def _poisoned(encode: Any, number: int, version: int, model: Any) -> Any:
    return encode(number, version, {k: x * np.nan for k, x in model.items()})


@pytest.mark.parametrize("wrong", ["names", "dtype", "shape"])
def test_codes_of_another_form_are_refused(wrong):
    world = World(SETTINGS._replace(compressor="sign"))
    process = world.process("a")
    assert process.offer(8, 2, 0)
    name = offers.folder_of(1) + "/a.000001"
    meta, arrays = offers.unpack(name, world.store.files[name])
    key = next(iter(arrays))
    if wrong == "names":
        arrays["b#0"] = arrays.pop(key)
    else:
        x = arrays[key]
        arrays[key] = x[:0] if wrong == "shape" else x.astype(np.float16)
    world.store.files[name] = offers.pack(meta, arrays)
    with pytest.raises(DamagedFile, match=r"its arrays are not|instead of"):
        offers.read(world.store, world.run, 1, "a.000001", {})


class Letters:
    """Mail that a test writes: what has come, and what was sent."""

    def __init__(self) -> None:
        self.news, self.sent = News(0, [], set(), False), list[Offer]()

    def arrived(self) -> News:
        return self.news

    def send(self, offer: Offer) -> None:
        self.sent.append(offer)

    def wait_for(self, version: int) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("is_merged", [True, False])
def test_what_no_merge_has_leaves_no_residual(is_merged):
    """Nothing moves after the first contribution: what it lost comes next, or never."""
    settings = SETTINGS._replace(fragments=1, compressor="quantize2+ef14")
    start = {"a": np.zeros(6, np.float32)}
    run, mail = Agreed.of(settings, start), Letters()
    anchor = Fragment(0, 0, start)
    joined = Joined(Member("a", 1), 0, [anchor])
    island = Island(run, joined, start, mail, Pace(None))
    params = {"a": np.array([0.1, 0.2, 0.35, 0.5, 0.75, 1.0], np.float32)}
    for _ in range(settings.step_of(1)):
        island.exchange(params)
    after = Fragment(0, 1, start)
    mail.news = News(1, [after], {1} if is_merged else set(), False)
    params = island.exchange(start)
    mail.news = News(1, [], set(), False)
    for _ in range(settings.step_of(1)):
        island.exchange(start)
    assert [offer.version for offer in mail.sent] == [1, 2]
    code = settings.compressor
    found = decoded(code, 0, 2, start, mail.sent[1].model)
    assert bool(np.any(found["a"])) == is_merged


def by_hand(merges: int) -> list[np.ndarray]:
    """Three islands in lock step, in four bits: a list of workers in NumPy."""
    code = compression.quantize(4)
    x = [np.zeros(12, np.float32) for _ in TARGETS]
    cut = [slice(0, 8), slice(8, 12)]
    a: list[Any] = [np.zeros(8, np.float32), np.zeros(4, np.float32)]
    v, lost = [0 * p for p in a], [[0 * p for p in a] for _ in x]
    for merge in range(merges):
        p, sent = merge % 2, []
        for i, target in enumerate(TARGETS):
            for _ in range(H // 2):
                x[i] = x[i] - np.float32(RATE) * (x[i] - target)
            whole = a[p] - x[i][cut[p]] + lost[i][p]
            sent.append(np.asarray(compression.roundtrip(code, jnp.asarray(whole))))
            lost[i][p] = whole - sent[-1]
        mean = np.mean(sent, axis=0)
        v[p] = 0.9 * v[p] + mean
        a[p] = a[p] - 0.7 * (mean + 0.9 * v[p])
        for each in x:
            each[cut[p]] = a[p]
    return a


@pytest.mark.long
def test_islands_in_codes_merge_what_a_person_would(tmp_path):
    how = {"quorum": 3, "merge": "mean", "keep": True, "compressor": "quantize4+ef14"}
    together(tmp_path, 6 * H, [8, 8, 8], **how)
    store = Folder(tmp_path)
    assert [merge.is_equal for merge in replay(store)] == [True] * 12
    for number, expected in enumerate(by_hand(12)):
        found = published(store, Agreed.read(store), 11 + number, number).anchor
        np.testing.assert_allclose(found["ab"[number]], expected, atol=1e-5)
