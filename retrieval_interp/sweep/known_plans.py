"""The plans that come with the toolkit. The help of the command line names them, so this imports nothing slow."""

from pathlib import Path

PLANS = Path(__file__).parent / "plans"


def known_plans() -> str:
    """Return the names of all plans, for messages; ``figure4`` stands for one of them by its scale."""
    return ", ".join(["figure4 (see --scale)", *sorted(path.stem for path in PLANS.glob("*.yaml"))])
