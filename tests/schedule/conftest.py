"""What the tests of orders share."""

import itertools

import pytest


@pytest.fixture(scope="session")
def permutations_of():
    """Every order of a graph's recvs."""

    def permutations(graph):
        return [list(order) for order in itertools.permutations(graph.recvs)]

    return permutations
