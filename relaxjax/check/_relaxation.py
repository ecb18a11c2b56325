"""The laws of a relaxation: a gradient transformation over a named axis.

Before an optimizer it replaces gradients, and claims three things unless it says less:

    same    every worker gets the same updates, to the bit
    mean    nothing of the gradients is lost (`relaxjax.check._conservation`)
    alone   one worker by itself takes the plain optimizer's steps

The first two are checked on 4 workers and on 3, which no halving divides.

With an optimizer inside it is free; the same things, and whether the mean of the models
moves by the mean update, are reported, and checked where they are claimed.
"""

from collections.abc import Callable, Collection

import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax.check._conservation import LAW, conserves
from relaxjax.check._run import WORKERS, flat, gradients, moments, start
from relaxjax.check._subjects import require_claims
from relaxjax.check._verdict import Verdict, farthest, refuted, unclaimed, verdict_of
from relaxjax.workers import Emulation, emulate, spread

Make = Callable[
    [int, optax.GradientTransformation | None], optax.GradientTransformation
]
_TOLERANCE = 1e-5


def relaxation_laws(
    make: Make,
    *,
    claims: Collection[str],
    mesh: Mesh | Emulation | None = None,
) -> tuple[Verdict, ...]:
    """Checks a relaxation against what it claims.

    Args:
      make: `make(workers, optimizer)` returns the whole transformation over the axis
        `"data"`; without an optimizer, what comes before one.
      claims: some of `CLAIMS["relaxation"]`; what is not claimed is only reported.
      mesh: 4 devices to compare emulated workers with; None skips that law.

    Returns:
      A verdict for each law.

    Raises:
      ValueError: `claims` has another word.

    Example:
      >>> import optax, relaxjax
      >>> from relaxjax.check import relaxation_laws
      >>> def make(workers, optimizer):
      ...     return optax.chain(relaxjax.all_reduce("data"), optimizer)
      >>> for law in relaxation_laws(make, claims=("same", "alone"))[:2]:
      ...     print(law.law, law.holds)
      the same updates True
      one worker alone True
    """
    require_claims("relaxation_laws: claims", "relaxation", claims)
    laws: dict[str, Callable[[], Verdict]] = {
        "the same updates": lambda: _same(make, "same" in claims),
        "one worker alone": lambda: _alone(make, "alone" in claims),
        LAW: lambda: _mean(make, "mean" in claims),
        "three workers": lambda: _three(make, claims),
        "on devices as emulated": lambda: _on_devices(make, mesh),
        "not finite": lambda: _not_finite(make),
    }
    return tuple(verdict_of(name, check) for name, check in laws.items())


def _sgd(make: Make, workers: int, rate: float = 1.0) -> optax.GradientTransformation:
    return make(workers, optax.sgd(rate))


def _same(make: Make, claimed: bool, workers: int = WORKERS) -> Verdict:
    law, tx = "the same updates", _sgd(make, workers)
    steps = gradients("gauss", workers)
    for step, now in enumerate(moments(tx, steps, emulate(workers))):
        if apart := spread(now.updates):
            if not claimed:
                found = f"models differ, by {apart:.4g} at step {step}"
                return Verdict(law, None, found)
            updates = flat(now.updates)
            worst = int(np.ptp(updates, axis=0).argmax())
            where = {"gradients": "gauss", "workers": workers, "step": step}
            seen = " ".join(f"{x:.6g}" for x in updates[:, worst])
            found = f"they differ by {apart:.4g}"
            return refuted(law, found, where | {"element": worst}, "one value", seen)
    return Verdict(law, True if claimed else None, "equal on all workers, to the bit")


def _alone(make: Make, claimed: bool) -> Verdict:
    law, steps = "one worker alone", gradients("gauss", 1)
    plain = moments(optax.sgd(0.1), steps, emulate(1))
    relaxed = moments(_sgd(make, 1, 0.1), steps, emulate(1))
    for step, (one, other) in enumerate(zip(plain, relaxed, strict=True)):
        x, y = flat(one.params)[0], flat(other.params)[0]
        (worst,), off = farthest(x, y)
        if off > _TOLERANCE:
            where = {"gradients": "gauss", "workers": 1, "step": step, "element": worst}
            words = "other steps than the optimizer's"
            failed = refuted(law, words, where, x[worst], y[worst])
            return failed if claimed else unclaimed(failed, "not the plain optimizer")
    return Verdict(law, True if claimed else None, "the plain optimizer's steps")


def _mean(make: Make, claimed: bool, workers: int = WORKERS) -> Verdict:
    """Updates by SGD with a rate of 1 are gradients, with the other sign."""
    tx = _sgd(make, workers)
    return conserves(tx, emulate(workers), claimed=claimed, sign=-1.0)


def _three(make: Make, claims: Collection[str]) -> Verdict:
    """The same two laws where the number of workers is no power of two."""
    law, checks = "three workers", {"same": _same, "mean": _mean}
    try:
        laws = [check(make, claim in claims, 3) for claim, check in checks.items()]
    except ValueError as error:  # a number that the transformation refuses
        return Verdict(law, None, f"refused: {error}".splitlines()[0])
    for failed in laws:
        if failed.holds is False:
            return failed._replace(law=law)
    found = "; ".join(each.found for each in laws)
    return Verdict(law, True if any(each.holds for each in laws) else None, found)


def _on_devices(make: Make, mesh: Mesh | Emulation | None) -> Verdict:
    law = "on devices as emulated"
    if not isinstance(mesh, Mesh):
        return Verdict(law, None, "there are not enough devices")
    n = mesh.size
    steps = gradients("gauss", n, 3)
    emulated = moments(_sgd(make, n, 0.1), steps, emulate(n))
    on_mesh = moments(_sgd(make, n, 0.1), steps, mesh)
    for step, (one, other) in enumerate(zip(emulated, on_mesh, strict=True)):
        x, y = flat(one.params), flat(other.params)
        worst, off = farthest(x, y)
        if off > _TOLERANCE:
            worker, element = worst
            where = {"gradients": "gauss", "workers": n, "step": step}
            where |= {"worker": worker, "element": element}
            expected = f"{x[worst]:.6g} as emulated"
            return refuted(law, "another result", where, expected, y[worst])
    return Verdict(law, True, f"the same models, {n} workers")


def _not_finite(make: Make) -> Verdict:
    """What a NaN on one worker does in its step; nothing is claimed."""
    steps = gradients("gauss", WORKERS, 1)
    steps[0]["bias"][1, 0] = np.nan
    (now,) = moments(_sgd(make, WORKERS), steps, emulate(WORKERS))
    params = flat(now.params)
    hit = [i for i, x in enumerate(params) if not np.isfinite(x).all()]
    if not hit:
        found = "a NaN on one worker reaches no model in its step"
        if np.array_equal(params[:1], flat({k: x[None] for k, x in start().items()})):
            found += ": all skip it"
    elif len(hit) == WORKERS:
        found = "a NaN on one worker shows on all"
    else:
        found = f"a NaN on worker 1 shows on workers {hit} in its step"
    return Verdict("not finite", None, found)
