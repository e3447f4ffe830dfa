"""How many layers the retrieval problem takes, by information flow (paper, section 5; ``circuits.flow.flow``).

All of this is about the flow's assumptions, not about every trained model: an MLP can do what Assumption 1 forbids.

Put the pieces of one chain on a line, x0 p1 x1 p2 x2 ... xD: piece 0 to piece 2D. The query starts with piece 0, and
position i of the line with pieces i - 1 and i, so that neighbours share one piece. Every position knows an interval
(lemma 2), and whoever touches an interval takes all of it.

Without a mask, if everybody's interval reaches a pieces further than at the start, the query touches those of positions
up to 1 + 2a, and they reach a further: 3a + 1. From a = 0 that makes (3^t - 1) / 2 after t layers, and xD is known when
this is at least 2D: 3^t >= 4D + 1. The paper counts lengths only: 3^t >= 2D.

With the causal mask and the last step first, second members see the pairs of later steps and the first member beside
them. After t >= 1 layers the second member of pair k knows pieces 2k - 2 to 2k + 2^t - 1: it touches those of pairs up
to k + 2^(t-1), and their reach is added to that. A first member sees no one who knows its pieces or any below, and
learns nothing. The query takes piece 1 from pair 1's first member, with the first layer; from then on, at 2^t - 1, it
touches the second member of pair 2^(t-1) and comes to 2^(t+1) - 1. So xD is known when 2^t - 1 >= 2D, that is 2^t > 2D.

With the first step first everybody looks back only: position i of the line knows pieces i - 2^t to i after t layers,
since the one at the far end knows as many again. The query, at 2^t - 1, touches position 2^(t+1) - 1: the same number.

Where members of a pair stand side by side at fixed positions, heads can fetch pairs without sharing anything with them,
and an MLP can compare what was fetched: against Assumption 1. Then a pair is found by what any of its members knows,
and nobody needs a layer to join its members. With the last step first, the second member of pair k knows up to symbol k
+ 2^t - 1 after t layers: it finds pair k + 2^t by its first member, whose second knows up to k + 2^(t+1) - 1. The
query, at symbol 2^t - 1, finds pair 2^t and comes to 2^(t+1) - 1. With the first step first, the members of pair k
together know symbols k - 2^t to k: they find pair k - 2^t. The query, at symbol 2^t - 1, finds pair 2^(t+1) - 1, which
knows that one too, and comes to 2^(t+1) - 1. Either way xD is known when 2^t > D, exactly one layer earlier.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from circuits.errors import BadInput

MOST_HOPS = 10**18


def bound_paper(n_steps: int) -> float:
    """The paper's lower bound, log3(2D) layers (Theorem 1)."""
    return math.log(2 * _checked(n_steps), 3)


def layers_full(n_steps: int) -> int:
    """The layers that it takes without a mask: the least t with 3^t >= 4D + 1. Proved above."""
    needed, layers = 4 * _checked(n_steps) + 1, 0
    while 3**layers < needed:
        layers += 1
    return layers


def layers_causal(n_steps: int) -> int:
    """The layers that it takes with the causal mask, in either step order: the least t with 2^t > 2D. Proved above.

    That is 1 + ceil(log2(D + 1)), and floor(log2 D) + 2, which Sanford et al. (2024) show to be enough for k-hop
    induction, k = D. That fewer are not enough follows here from the assumptions.
    """
    return (2 * _checked(n_steps)).bit_length()


def layers_by_position(n_steps: int) -> int:
    """The layers with the causal mask if pairs are fetched by where they stand: the least t with 2^t > D. Proved above.

    It takes as many heads as there are positions to fetch, and MLPs to compare what they brought.
    """
    return _checked(n_steps).bit_length()


class Depth(NamedTuple):
    """The layers that a number of hops D takes."""

    hops: int
    bound_paper: float
    layers_full: int
    layers_causal: int
    layers_by_position: int


def depths(hops: Iterable[int]) -> list[Depth]:
    """One row for every number of hops D; ``pandas.DataFrame`` makes a table of them.

    Raises:
        BadInput: a number of hops is below 1, or beyond all use.
    """
    return [Depth(d, bound_paper(d), layers_full(d), layers_causal(d), layers_by_position(d)) for d in hops]


def _checked(n_steps: int) -> int:
    if not 1 <= n_steps <= MOST_HOPS:
        raise BadInput(f"{n_steps} hops; expected a whole number from 1 to 10^18")
    return n_steps
