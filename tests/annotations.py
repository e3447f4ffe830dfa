"""In the tests all annotations of the packages are checked: types everywhere, and shapes where there are tensors.

The hooks must be there before the packages are imported, in this process. What jaxtyping does takes longer than the
tests: beartype alone checks what has no shapes, and a function that is in another is wrapped once, not at every call.
"""

import re
from contextlib import suppress
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.claw import beartype_packages

ROOT = Path(__file__).parent.parent
# Beartype alone wants names that are there for type checkers only, does not find what a NamedTuple's annotations name
# that are read later, and comes before what reads arguments (entrance).
SLOW = ("jaxtyping", "TYPE_CHECKING", "class Loaded(NamedTuple)", "@entrance")
SHAPES = re.compile(r"\b(Bool|Float|Int|Num|Real|Shaped)\w*\[")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for package in ("circuits", "retrieval_interp")
    for path in (ROOT / package).rglob("*.py")
    if path.stem != "__init__"
}
# As jaxtyping does: what does not fit is a TypeError, and only what goes in and out of functions is checked.
conf = BeartypeConf(violation_type=TypeError, claw_is_pep526=False)
KNOWN, with_shapes = {}, jaxtyping.jaxtyped(typechecker=beartype)


def of_code(one):
    """Return a function that checks what goes in and out of a function that it is given first, and has this code."""
    if one.__code__ not in KNOWN:
        run = wraps(one)(lambda _function, /, *given, **named: _function(*given, **named))
        own, first = signature(one, eval_str=True), Parameter("_function", Parameter.POSITIONAL_ONLY)
        run.__signature__ = own.replace(parameters=[first, *own.parameters.values()])
        KNOWN[one.__code__] = with_shapes(run)
    return KNOWN[one.__code__]


def checked(thing):
    """Return a function or a class with checks."""
    if not isinstance(thing, FunctionType):
        return with_shapes(thing)
    with suppress(NameError):  # names that are there for type checkers only; jaxtyping takes them for Any
        if "<locals>" in thing.__qualname__:
            run = of_code(thing)
            return wraps(thing)(lambda *given, **named: run(thing, *given, **named))
        if not any(SHAPES.search(str(hint)) for hint in get_type_hints(thing).values()):  # aliases have shapes, too
            return beartype(conf=conf)(thing)
    return with_shapes(thing)


jaxtyping.jaxtyped = lambda typechecker: checked  # what its hook puts around functions and classes
slow = [name for name, text in MODULES.items() if any(word in text for word in SLOW)]
jaxtyping.install_import_hook(slow, "beartype.beartype")
beartype_packages([name for name in MODULES if name not in slow], conf=conf)
