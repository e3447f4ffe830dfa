"""In the tests all annotations of the packages are checked: types everywhere, and shapes where there are tensors.

The hooks must be there before the packages are imported, and only in the process that runs the tests. Where there are
no shapes beartype does it alone: what jaxtyping does besides takes as long as the tests themselves.
"""

from pathlib import Path

from beartype import BeartypeConf
from beartype.claw import beartype_packages
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent
# Beartype alone wants names that are there for type checkers only, does not find what a NamedTuple's annotations name
# that are read later, and comes before what reads arguments (entrance).
SLOW = ("jaxtyping", "TYPE_CHECKING", "class Loaded(NamedTuple)", "@entrance")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for package in ("circuits", "retrieval_interp")
    for path in (ROOT / package).rglob("*.py")
    if path.stem != "__init__"
}
slow = [name for name, text in MODULES.items() if any(word in text for word in SLOW)]
install_import_hook(slow, "beartype.beartype")
# As jaxtyping does: what does not fit is a TypeError, and only what goes in and out of functions is checked.
conf = BeartypeConf(violation_type=TypeError, claw_is_pep526=False)
beartype_packages([name for name in MODULES if name not in slow], conf=conf)
