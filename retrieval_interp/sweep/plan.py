"""The plan of a sweep: presets and the number of seeds, in a YAML file such as

seeds: 3
presets:
  - laptop_ic_1
  - laptop_ic_2
"""

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field, ValidationError

from circuits.errors import BadInput
from circuits.utils.files import read_text
from circuits.utils.yaml_file import LARGEST_FILE, parse
from retrieval_interp.models.presets import preset
from retrieval_interp.tasks.retrieval import RetrievalTask

PLANS = Path(__file__).parent / "plans"
KNOWN = ", ".join(["figure4 (see --scale)", *sorted(path.stem for path in PLANS.glob("*.yaml"))])


class Run(NamedTuple):
    """One model to train."""

    preset: str
    seed: int

    def __str__(self) -> str:
        return f"{self.preset}, seed {self.seed}"


class Plan(BaseModel, extra="forbid"):
    """The content of a plan's file; the seeds of each preset are counted from 0."""

    seeds: int = Field(ge=1, le=10_000)
    presets: list[str] = Field(min_length=1)


def find_plan(name: str, scale: str) -> Path:
    """Return the file of a plan.

    Args:
        name: the path of a YAML file, or the name of a plan that comes with the toolkit, such as ``figure4``.
        scale: the scale of the plan, if it comes in several.

    Raises:
        BadInput: there is no such plan.
    """
    known = [PLANS / f"{name}_{scale}.yaml", PLANS / f"{name}.yaml"] if Path(name).name == name else []
    for path in (*known, Path(name)):
        if path.is_file():
            return path
    raise BadInput(f"{name}: no such file, nor a plan that comes with the toolkit: {KNOWN}")


def load_plan(path: Path) -> list[Run]:
    """Return the runs of a plan, ordered by preset, then by seed.

    Raises:
        BadInput: the file is malformed, or a preset is unknown, given twice, or not of the retrieval problem.
    """
    try:
        plan = Plan.model_validate(parse(read_text(path, "the plan of a sweep", LARGEST_FILE), str(path)))
    except ValidationError as error:
        what = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise BadInput(f"{path}: expected the keys seeds, a number, and presets, a list of names ({what})") from error
    if twice := [name for name in plan.presets if plan.presets.count(name) > 1]:
        raise BadInput(f"{path}: {twice[0]} is given twice")
    for name in plan.presets:
        try:
            task = preset(name).task
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        if not isinstance(task, RetrievalTask):
            raise BadInput(f"{path}: {name} is not a preset of the retrieval problem; a sweep trains no others")
    return [Run(name, seed) for name in plan.presets for seed in range(plan.seeds)]
