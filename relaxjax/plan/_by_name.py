"""The prediction of one relaxation, by its name and options."""

import inspect
from collections.abc import Mapping
from dataclasses import replace

from relaxjax._names import RELAXATIONS, parse
from relaxjax.plan._candidate import Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._predict import Prediction
from relaxjax.plan._quality import bare
from relaxjax.plan._rank import best_bucket


def predicted(
    name: str, model: Model, network: Network, options: Mapping[str, float]
) -> Prediction | None:
    """What is expected of a relaxation; None: plans do not know it with these options.

    Its period may be any, or the mean of several. Codes without an algorithm are those
    over two shots, as plans rank them.

    Args:
      name: its name, such as `all_reduce+quantize8`.
      model: params and computation.
      network: workers, links, codecs.
      options: its options.
    """
    build = RELAXATIONS[parse(name).row.name].build
    usual = {k: p.default for k, p in inspect.signature(build).parameters.items()}
    every = options.get("sync_every")
    for c in candidates(network):
        if name not in _spelled(c) or not c.fits(model):
            continue
        keys = (c.options.keys() | options.keys()) - {"sync_every"}
        mine = {k: options.get(k, usual.get(k)) for k in keys}
        if mine != {k: c.options.get(k, usual.get(k)) for k in keys}:
            continue
        if every is not None:
            c = replace(c, every=every)
        elif "sync_every" in c.options:
            continue
        return best_bucket(c, model, network, None)
    return None


def _spelled(c: Candidate) -> tuple[str, ...]:
    """Its name, and that without the algorithm that codes take by themselves."""
    names = c.relaxation, bare(c.relaxation)
    return (*names, c.relaxation.partition("@")[0]) if "bits" in c.options else names
