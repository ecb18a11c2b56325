"""A topology in one file: each worker hears of another, one hop on and then two.

    x_i <- (x_i + x_{i + h}) / 2,  h = 1 in even rounds, 2 in odd ones (mod n)

Check it with `relaxjax check FILE.py`. In the library it is this file and one row,
`"two_hops": two_hops`, of TOPOLOGIES in relaxjax/topology/_rows.py.
"""

import numpy as np

from relaxjax.topology import Topology


def two_hops(workers: int) -> Topology:
    """Two rounds, one message each."""
    same = np.eye(workers)
    # Row i is what worker i makes of all; rows and columns must sum to 1.
    rounds = [(same + np.roll(same, hops, axis=1)) / 2 for hops in (1, 2)]
    return Topology("two_hops", np.stack(rounds))


# What a worker sends in a step, held against the traced and the compiled program.
BYTES = {"two_hops": lambda size, workers: 4 * size}
