"""The retrieval problem in words: the paper's five formulations (section 4, appendix A), for language models."""

from circuits.errors import BadInput
from retrieval_interp.prompts.chains import Chains, Links
from retrieval_interp.prompts.equations import Equations
from retrieval_interp.prompts.formulation import Formulation
from retrieval_interp.prompts.functions import Functions, Tables
from retrieval_interp.prompts.kingdoms import Kingdoms
from retrieval_interp.prompts.lives_with import LivesWith
from retrieval_interp.prompts.question import Mark, Question
from retrieval_interp.prompts.relatives import Families, Relatives

FORMULATIONS: dict[str, type[Formulation]] = {
    kind.name: kind for kind in (Equations, LivesWith, Kingdoms, Functions, Relatives)
}
STEPS = 5  # the paper's D for the formulations with any number of steps


def formulation(name: str, steps: int | None = None, chains: int = 4) -> Formulation:
    """Return a formulation by name; the default size is the paper's.

    Args:
        name: ``equations``, ``lives_with`` (or ``lives-with``), ``kingdoms``, ``functions`` or ``relatives``.
        steps: D, the number of retrieval steps; only for ``equations`` and ``lives_with``.
        chains: N, the number of chains.

    Raises:
        BadInput: there is no such formulation, or a size is out of range.
    """
    name = name.replace("-", "_")
    if name not in FORMULATIONS:
        raise BadInput(f"unknown formulation {name!r}; expected one of {', '.join(FORMULATIONS)}")
    if name == "equations":
        return Equations(chains, STEPS if steps is None else steps)
    if name == "lives_with":
        return LivesWith(chains, STEPS if steps is None else steps)
    if steps is not None:
        raise BadInput(f"{name}: the number of steps cannot be chosen; expected equations or lives_with")
    return FORMULATIONS[name](chains)


__all__ = [
    "FORMULATIONS",
    "Chains",
    "Equations",
    "Families",
    "Formulation",
    "Functions",
    "Kingdoms",
    "Links",
    "LivesWith",
    "Mark",
    "Question",
    "Relatives",
    "Tables",
    "formulation",
]
