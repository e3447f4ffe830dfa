"""The numbers that decide in discovery, each with its reason."""

from circuits.results import Result


class DiscoverySettings(Result):
    """The numbers that decide in discovery.

    Attributes:
        aim: the share of the allowed increase of the loss that may be used while mechanisms are chosen. The rest is a
            margin, because other examples may be harder.
        last: the same in the last pruning: almost all, because step 6 tests each path against the whole increase.
        slack: how much simpler mechanisms may raise a loss that is already too high; without it none would be tried.
        on: a path holds for a label if the average attention along it is higher: the target gets more than all else.
        likely: the same in content heads, if the paths above ``on`` do not explain the model. A head that leaks to
            other instances may give its target less than half, and an MLP may still take what it has most of.
        missed: a head gets a path only if its loss without any is more than so many times the allowed one, by more than
            three standard errors, because validation calls a path that costs less weak.
    """

    aim: float = 0.6
    last: float = 0.9
    slack: float = 0.002
    on: float = 0.5
    likely: float = 0.3
    missed: float = 2.0


DEFAULT = DiscoverySettings()
