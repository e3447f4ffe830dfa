"""The retrieval problem in words: the paper's five formulations (section 4, appendix A), for language models."""

from circuits.errors import BadInput
from retrieval_interp.prompts.chains import AnyLength
from retrieval_interp.prompts.equations import Equations
from retrieval_interp.prompts.formulation import Formulation
from retrieval_interp.prompts.functions import Functions
from retrieval_interp.prompts.kingdoms import Kingdoms
from retrieval_interp.prompts.lives_with import LivesWith
from retrieval_interp.prompts.relatives import Relatives

FORMULATIONS: dict[str, type[Formulation]] = {
    kind.name: kind for kind in (Equations, LivesWith, Kingdoms, Functions, Relatives)
}


def formulation(name: str, steps: int | None = None, chains: int = 4) -> Formulation:
    """Return a formulation by name; the default size is the paper's.

    Args:
        name: ``equations``, ``lives_with`` (or ``lives-with``), ``kingdoms``, ``functions`` or ``relatives``.
        steps: D, the number of retrieval steps; only for ``equations`` and ``lives_with``.
        chains: N, the number of chains.

    Raises:
        BadInput: there is no such formulation, or a size is out of range.
    """
    kind = FORMULATIONS.get(name.replace("-", "_"))
    if kind is None:
        raise BadInput(f"unknown formulation {name!r}; expected one of {', '.join(FORMULATIONS)}")
    if steps is None:
        return kind(chains)
    if not issubclass(kind, AnyLength):
        raise BadInput(f"{name}: the number of steps cannot be chosen; expected equations or lives_with")
    return kind(chains, steps)
