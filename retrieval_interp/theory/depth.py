"""How many layers the retrieval problem takes, by information flow (paper, section 5; ``information_flow``).

The numbers follow from the assumptions of information flow. A trained model can need fewer layers, because an MLP can
do what Assumption 1 forbids.

Notation. Put the pieces of one chain on a line, x0 p1 x1 p2 x2 ... xD, and number them from 0 to 2D. The query starts
with piece 0. Position i of the line starts with pieces i - 1 and i, so neighbours share one piece. Every position knows
an interval of pieces (lemma 2). A position takes all of every interval that overlaps its own and that it sees.

Without a mask. Suppose that every interval reaches a pieces further than at the start. Then the query's interval
overlaps those of positions up to 2a + 1. These reach a pieces further, so the query comes to piece 3a + 1. From a = 0
this gives (3^t - 1) / 2 after t layers. xD is known when this is at least 2D: 3^t >= 4D + 1. The paper counts lengths
only: 3^t >= 2D.

With the causal mask and the last step first. A second member sees the pairs of later steps and the first member of its
own pair. After t >= 1 layers, the second member of pair k knows pieces 2k - 2 to 2k + 2^t - 1: in the next layer its
interval overlaps those of pairs up to k + 2^(t-1), and their reach is added to that. A first member sees no position
that knows its pieces or lower ones, so it learns nothing. In the first layer, the query takes piece 1 from the first
member of pair 1. After t layers it knows pieces up to 2^t - 1. In the next layer its interval overlaps that of the
second member of pair 2^(t-1), and the query comes to 2^(t+1) - 1. So xD is known when 2^t - 1 >= 2D, that is 2^t > 2D.

With the causal mask and the first step first. Every position sees only lower positions of the line. After t layers,
position i knows pieces i - 2^t to i, because the position at the far end of its interval knows as many pieces again.
The query's interval, up to piece 2^t - 1, overlaps that of position 2^(t+1) - 1, and the query comes to piece
2^(t+1) - 1. So the number of layers is the same.

Pairs fetched by position. If the members of a pair are neighbours at fixed positions, heads can fetch pairs with which
they share nothing, and an MLP can compare what was fetched. This is against Assumption 1. A pair is then found by what
any of its members knows, and no layer is needed to join its members.

With the last step first, the second member of pair k knows symbols up to k + 2^t - 1 after t layers. It finds pair
k + 2^t by the first member of that pair, whose second member knows symbols up to k + 2^(t+1) - 1. The query, at symbol
2^t - 1, finds pair 2^t and comes to 2^(t+1) - 1. With the first step first, the members of pair k together know symbols
k - 2^t to k, and find pair k - 2^t. The query, at symbol 2^t - 1, finds pair 2^(t+1) - 1, which also knows this symbol,
and comes to 2^(t+1) - 1. In both orders xD is known when 2^t > D, exactly one layer earlier.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from circuits.errors import BadInput

MOST_HOPS = 10**18


def bound_paper(n_steps: int) -> float:
    """Return the paper's lower bound, log3(2D) layers (Theorem 1)."""
    return math.log(2 * _checked(n_steps), 3)


def layers_full(n_steps: int) -> int:
    """Return the number of layers needed without a mask: the least t with 3^t >= 4D + 1. Proof above."""
    needed, layers = 4 * _checked(n_steps) + 1, 0
    while 3**layers < needed:
        layers += 1
    return layers


def layers_causal(n_steps: int) -> int:
    """Return the number of layers needed with the causal mask, in either step order: the least t with 2^t > 2D.

    Proof above. This number equals 1 + ceil(log2(D + 1)) and floor(log2 D) + 2. Sanford et al. (2024) show that it is
    enough for k-hop induction with k = D. That fewer layers are not enough follows from the assumptions here.
    """
    return (2 * _checked(n_steps)).bit_length()


def layers_by_position(n_steps: int) -> int:
    """Return the number of layers needed with the causal mask if pairs are fetched by position.

    It is the least t with 2^t > D. Proof above. The model needs a head for every position to fetch, and MLPs to compare
    what the heads fetched.
    """
    return _checked(n_steps).bit_length()


class Depth(NamedTuple):
    """The number of layers that D hops (retrieval steps) need, and the paper's bound.

    Attributes:
        hops: D.
        bound_paper: the paper's lower bound, log3(2D).
        layers_full: the number of layers without a mask.
        layers_causal: the number of layers with the causal mask.
        layers_by_position: the number of layers with the causal mask, if pairs are fetched by position.
    """

    hops: int
    bound_paper: float
    layers_full: int
    layers_causal: int
    layers_by_position: int


def depths(hops: Iterable[int]) -> list[Depth]:
    """Return one row for every number of hops (retrieval steps) D; ``pandas.DataFrame`` makes a table of them.

    Raises:
        BadInput: a number of hops is below 1 or above 10^18.
    """
    return [Depth(d, bound_paper(d), layers_full(d), layers_causal(d), layers_by_position(d)) for d in hops]


def _checked(n_steps: int) -> int:
    if not 1 <= n_steps <= MOST_HOPS:
        raise BadInput(f"{n_steps} hops; expected a whole number from 1 to 10^18")
    return n_steps
