"""The plan of a sweep: presets and the number of seeds, in a YAML file such as

seeds: 3
presets:
  - laptop_ic_1
  - laptop_ic_2
"""

import re
from dataclasses import dataclass
from pathlib import Path

from circuits.errors import BadInput
from circuits.utils.yaml_file import read_yaml
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.known_plans import PLANS, known_plans
from retrieval_interp.tasks.retrieval import RetrievalTask

MOST_SEEDS = 10_000
DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Run:
    """One model to train."""

    preset: str
    seed: int

    def __str__(self) -> str:
        return f"{self.preset}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """The models that a sweep trains.

    Attributes:
        name: the name of the plan's file.
        presets: the names of the presets.
        seeds: the number of seeds of each preset, from 0.
    """

    name: str
    presets: tuple[str, ...]
    seeds: int

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, ordered by preset, then by seed."""
        return tuple(Run(name, seed) for name in self.presets for seed in range(self.seeds))


def load_plan(name: str, scale: str) -> Plan:
    """Return a plan from a file, or one that comes with the toolkit.

    Args:
        name: the path of a YAML file, or a name such as ``figure4``.
        scale: the scale of the plan, if it comes in several.

    Raises:
        BadInput: there is no such plan, or the file is malformed.
    """
    own = [PLANS / f"{name}_{scale}.yaml", PLANS / f"{name}.yaml"] if Path(name).name == name else []
    path = next((path for path in own if path.is_file()), Path(name))
    if not path.is_file():
        raise BadInput(f"{name}: no such file, nor a plan that comes with the toolkit: {known_plans()}")
    document = read_yaml(path, "the plan of a sweep")
    if not isinstance(document, dict) or {*document} != {"seeds", "presets"}:
        raise BadInput(f"{path}: expected the keys seeds and presets")
    seeds, names = document["seeds"], document["presets"]
    if not isinstance(seeds, str) or not DIGITS.fullmatch(seeds) or not 1 <= int(seeds) <= MOST_SEEDS:
        raise BadInput(f"{path}: seeds is {seeds!r:.80}; expected a whole number from 1 to {MOST_SEEDS}")
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        raise BadInput(f"{path}: presets is not a list of names of presets")
    if len({*names}) < len(names):
        raise BadInput(f"{path}: {next(one for one in names if names.count(one) > 1)} is given twice")
    for one in names:
        try:
            task = preset(one).task
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        if not isinstance(task, RetrievalTask):
            raise BadInput(f"{path}: {one} is not a preset of the retrieval problem; a sweep trains no others")
    return Plan(path.stem, tuple(names), int(seeds))
