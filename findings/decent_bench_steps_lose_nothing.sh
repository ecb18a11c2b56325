#!/bin/sh
# What: decent-bench loses messages by a network's drop scheme in `Algorithm.run` only. In a
#     loop of one's own over the public `initialize` and `step`, a dropped message is
#     replaced by the last one of the same sender, silently, since nobody empties the
#     mailboxes between steps.
# Hurt: whoever steps an algorithm beside another system, or stops by a rule of their own:
#     models keep their mean under losses of a half, and by `run` they shrink to zero.
# Guess: `run` is `initialize` and then `step` for each iteration, as its text says.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-python3}" python3.13 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[3-9]*/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>&1 && break
done >"$folder/log"
"$python" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$folder/venv/bin/pip" install -qq decent-bench==0.3.0 numpy==2.5.5 networkx==3.7

"$folder/venv/bin/python" - <<'END'
import random
import sys
from importlib.metadata import version

import networkx as nx
import numpy as np
from decent_array import interoperability as iop
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import DGD
from decent_bench.costs import ZeroCost
from decent_bench.networks import P2PNetwork
from decent_bench.schemes import UniformDropRate

iop.set_backend("numpy")
print({name: version(name) for name in ("decent-bench", "numpy")})


def largest(by_run: bool) -> float:
    """The largest value of eight models that begin at 3, after 200 iterations."""
    random.seed(0)
    members = [Agent(ZeroCost((2,))) for _ in range(8)]
    lossy = UniformDropRate(0.5)
    network = P2PNetwork(nx.cycle_graph(8), members, message_drop=lossy)
    first = {member: iop.from_numpy(np.full(2, 3.0)) for member in members}
    method = DGD(step_size=0.1, x0=first)
    if by_run:
        method.run(network, 200)
    else:
        method.initialize(network)
        for iteration in range(200):
            method.step(network, iteration)
    return max(float(np.abs(iop.to_numpy(m.x)).max()) for m in members)


by_run, by_steps = largest(True), largest(False)
print(f"half of the messages are lost; models begin at 3. By run: {by_run:.3g}")
print(f"by initialize and step: {by_steps:.3g}")
if not (by_run < 1e-6 and by_steps > 2):
    sys.exit("changed")
print("holds")
END
