"""A topology in one file: each worker hears from one other, one hop away, then two.

    x_i <- (x_i + x_{i + h}) / 2,  h = 1 in even rounds, 2 in odd ones (mod n)

Check it with `relaxjax check FILE.py`. In the library it is this file and one row,
`"two_hops": two_hops`, of TOPOLOGIES in relaxjax/topology/_rows.py.
"""

import numpy as np

from relaxjax.topology import Topology


def two_hops(workers: int) -> Topology:
    """Two rounds, one message each."""
    same = np.eye(workers)
    # Row i has the weights of worker i's average; rows and columns must sum to 1.
    rounds = [(same + np.roll(same, hops, axis=1)) / 2 for hops in (1, 2)]
    return Topology.of_matrices("two_hops", rounds)


# The bytes that a worker sends in a step, compared with the program.
BYTES = {"two_hops": lambda size, workers: 4 * size}
