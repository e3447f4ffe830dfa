"""The numbers that decide, in one place, each with its reason.

Every report says with which it was made. Others are passed around a call:

    with deciding(sure=4.0):
        report = validate(model, task, circuit)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from pydantic import Field, ValidationError

from circuits.errors import BadInput
from circuits.results import Result

Count = Annotated[int, Field(ge=2)]  # of examples; a standard error needs two
Whole = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


class Settings(Result):
    """The numbers that decide.

    Attributes:
        error: the share of decisions on losses that may be wrong, whatever the tails of the losses are (betting.py).
        least: the least effect: what changes the loss by less of the range (sequential_test.py) counts as no effect. So
            do failures of the model that are a smaller share of its answers.
        sure: standard errors; a larger difference is taken as real where discovery searches. Three are right in 99.7%
            of cases if means are normal, which those of heavy-tailed losses are not.
        glanced: the examples on which discovery leaves out changes that are clearly too costly.
        few: the fewest examples for any circuit: enough to see that a loss is far above the threshold.
        enough: the fewest examples for a loss below the threshold, and for every loss that a report shows.
        in_passing: the most examples for a candidate that is an intermediate step of a search.
        averaged, averaged_of_many: the examples in a head's average pattern, and in that of a model with many heads.
        kept: discovery keeps what costs at least so many least effects, so that it clearly has one on other examples.
        failed: the model fails an instance if its loss is more than this share of the range above the average.
        random_sets: the sets of three or more of the circuit's heads that are knocked out, beside all single ones and
            pairs; and the random sets of heads that the circuit's heads are compared with.
        attended: the attention along a path that counts as looking there (paper, section 9.2, for emergence): more than
            all else gets. In discovery and in fixed patterns, a path holds from there on.
        likely: the same in discovery, if such paths do not explain the model: a head that leaks to other instances may
            give its target less than half, and an MLP may still take what it has most of.
        slight: what a role must give to another one, for a weight of its own in a soft head.
        one_by_one: the most heads that are each ablated alone; of a model with more, gates are learned.
        ranked: the examples on which gates are learned.
        followed: the attention that a Q or K edge of path patching must take. On transformers A to C, 363 of 454 edges
            take less than 0.02 and 46 more than 0.4; there is no gap between them, but few are near 0.25.
        carried: the share of the loss of all senders that a V edge must return. A squared error grows with the square
            of what is exchanged, so half of it returns a quarter; a little less, so that such an edge holds.
        screened, noticed: path patching measures losses for edges that lose this much attention on so many examples.
        carries: the interchange accuracy from which on a role carries a variable, and the share of instances in which
            the target of a self-consistent path gets most attention: in most cases.
        aim, last: the shares of the threshold that discovery may use while mechanisms are chosen, and in the last
            pruning. The rest is a margin, because other examples may be harder. Of many heads, ``last`` is an upper
            bound: the margin is what the final test needs (betting.py), but at most half of the threshold.
        slack: how much simpler mechanisms may raise a loss that is already too high; without it none would be tried.
    """

    error: Share = 0.01
    least: Share = 0.01
    sure: Amount = 3.0
    glanced: Count = 8
    few: Count = 32
    enough: Count = 128
    in_passing: Count = 512
    averaged: Count = 1024
    averaged_of_many: Count = 256
    kept: Amount = 2.0
    failed: Share = 0.25
    random_sets: Whole = 10
    attended: Share = 0.5
    likely: Share = 0.3
    slight: Share = 0.1
    one_by_one: Whole = 64
    ranked: Count = 256
    followed: Share = 0.25
    carried: Share = 0.22
    screened: Count = 64
    noticed: Share = 0.05
    carries: Share = 0.5
    aim: Share = 0.6
    last: Share = 0.9
    slack: Amount = 0.002


DEFAULT = Settings()
_CURRENT: ContextVar[Settings] = ContextVar("settings", default=DEFAULT)


def current() -> Settings:
    """Return the settings that hold here."""
    return _CURRENT.get()


def has_many_heads(cfg: Any) -> bool:
    """Whether a model of this config has more heads than are ablated one by one."""
    return bool(cfg.n_layers * cfg.n_heads > current().one_by_one)


@contextmanager
def deciding(**changes: int | float) -> Iterator[Settings]:
    """Change some of the settings for all that runs inside.

    Raises:
        BadInput: there is no such setting, or a value has another type.
    """
    if unknown := changes.keys() - Settings.model_fields.keys():
        raise BadInput(f"no setting {sorted(unknown)[0]!r}; expected one of {', '.join(Settings.model_fields)}")
    try:
        changed = Settings(**{**current().model_dump(), **changes})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        raise BadInput(f"the setting {wrong['loc'][0]} is {wrong['input']!r:.60}: {wrong['msg']}") from error
    if changed.few > changed.enough:
        raise BadInput(f"the setting few is {changed.few}; expected at most enough, {changed.enough}")
    token = _CURRENT.set(changed)
    try:
        yield changed
    finally:
        _CURRENT.reset(token)
