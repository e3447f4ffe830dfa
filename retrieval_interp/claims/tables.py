"""The tables with the measurements: configs and logs of training, reports of ``discover``, and others."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from retrieval_interp.claims.claim import listed
from retrieval_interp.claims.found_circuit import Measured
from retrieval_interp.models.model_dir import ATTENTION, CIRCUIT, CONFIG, LOG, REPORT, read_config
from retrieval_interp.models.presets import LITERAL, Recipe, preset
from retrieval_interp.reproduction.stored_report import circuit_found, read_report
from retrieval_interp.training.curves import EMERGED, first_below, parts_of, read_losses

ONE_LAYER = "one_layer"  # solves D = 1 with fewer layers than Assumption 1 allows
CONSTRUCTION = "construction.json"  # of a transformer with the fewest heads
SEED = re.compile(r"(.*_seed_)([0-9]+)")  # a folder that is named by its seed


@dataclass(frozen=True)
class Figure4:
    """The table of a sweep that repeats figure 4.

    Attributes:
        plan: the name of the sweep's plan, and its scale.
        recipe: the name of the recipe in the protocol.
        smaller: whether the models are smaller than the paper's.
    """

    plan: tuple[str, str]
    recipe: str
    smaller: bool

    @property
    def command(self) -> str:
        """The command that makes the table."""
        return f"retrieval-interp study sweep {self.plan[0]}"


FIGURE4 = {
    Path("sweeps", "figure4_paper", "runs.csv"): Figure4(("figure4_paper_one_seed", "paper"), "paper", smaller=False),
    Path("sweeps", "figure4_laptop", "runs.csv"): Figure4(("figure4", "laptop"), "small", smaller=True),
}


@dataclass(frozen=True)
class Models:
    """The transformers that stand for the paper's A, B, C and D.

    Attributes:
        recipe: the name of their recipe in the protocol.
        folders: their folders within ``data/``, by the paper's names.
        smaller: whether they were trained for fewer steps than the paper's.
    """

    recipe: str
    folders: Mapping[str, str]
    smaller: bool

    @property
    def abc(self) -> dict[str, str]:
        """The folders of A, B and C."""
        return {name: folder for name, folder in self.folders.items() if name != "D"}

    def said(self, data: Path, *names: str) -> str:
        """Return their recipe and seeds, such as ``recipe small, seeds 2, 1, 4``."""
        seeds = {name: read_config(data / self.folders[name])["made"].get("seed", "?") for name in names}
        if "D" in seeds and len(seeds) > 1:
            *abc, d = seeds.values()
            return f"recipe {self.recipe}, A to C: seeds {listed(abc)}; D: seed {d}"
        return f"recipe {self.recipe}, seed{'s' if len(seeds) > 1 else ''} {listed(seeds.values())}"

    def command(self, command: str, names: Iterable[str]) -> str:
        """Return the command that measured these transformers: that of the first, with the folders of the others."""
        folders = [f"data/{self.folders[name]}" for name in names]
        others = f" (and {', '.join(folders[1:])})" if folders[1:] else ""
        return f"retrieval-interp {command} {folders[0]}{others}" if folders else "-"

    def other_seeds(self, data: Path, name: str) -> dict[int, Path]:
        """Return the folders of a transformer's other seeds, which stand for no transformer of the paper, by seed."""
        found = SEED.fullmatch(self.folders[name])
        own = {data / folder for folder in self.folders.values()}
        beside = data.glob(f"{found[1]}*") if found else ()
        named = [(SEED.fullmatch(str(folder)), folder) for folder in beside if folder not in own]
        return dict(sorted((int(name[2]), folder) for name, folder in named if name))

    def every(self, data: Path) -> list[Path]:
        """Return the folders of all transformers of the recipe, with the other seeds."""
        own = [data / folder for folder in self.folders.values()]
        return own + [folder for name in "AD" for folder in self.other_seeds(data, name).values()]


SMALL = Models("small", {name: f"transformer_{name.lower()}" for name in "ABCD"}, smaller=True)
PAPER = Models(
    "paper",
    {name: f"paper_recipe/transformer_a_seed_{seed}" for seed, name in enumerate("ABC")}
    | {"D": "paper_recipe/transformer_d_seed_0"},
    smaller=False,
)


def check_all_there(data: Path) -> None:
    """Check that no table is missing, and that the transformers of the paper's recipe are what they stand for.

    Raises:
        BadInput: tables are missing (the message names each with the command that makes it), a run is unfinished, or
            it was trained with other settings than the paper's recipe.
    """
    needed = {data / table: sweep.command for table, sweep in FIGURE4.items()}
    needed[data / ONE_LAYER / CONFIG] = f"retrieval-interp models export RUN {data / ONE_LAYER}"
    needed[data / CONSTRUCTION] = f"retrieval-interp theory construct 3 --json > {data / CONSTRUCTION}"
    for models in (PAPER, SMALL):
        for folder in models.every(data):
            needed |= _needed(folder, with_circuit=models is SMALL)
    missing = [f"{path}: missing; make it with: {command}" for path, command in needed.items() if not path.exists()]
    if missing:
        raise BadInput("; and ".join(missing))
    for folder in PAPER.every(data):
        if not is_run_of(folder, {}):
            raise BadInput(f"{folder}: expected a finished run by the paper's recipe (see {CONFIG} and {LOG})")


def _needed(folder: Path, with_circuit: bool) -> dict[Path, str]:
    """Return the tables that a transformer's folder must have, with the commands that make them."""
    export, discover = f"retrieval-interp models export RUN {folder}", f"retrieval-interp discover {folder}"
    needed = {folder / LOG: export, folder / CONFIG: export}
    if "transformer_d" in folder.name:
        needed[folder / ATTENTION] = f"retrieval-interp study emergence RUN --out {folder}"
    report, circuit = folder / REPORT, folder / CIRCUIT
    if with_circuit or report.exists() or circuit.exists():
        needed[report] = f"{discover} --report {folder}"
        if not report.exists() or circuit_found(read_report(report)):
            needed[circuit] = f"{discover} --out {circuit}"
    return needed


def is_run_of(folder: Path, changes: Mapping[str, Any]) -> bool:
    """Whether a folder holds a finished run of transformer A or D by the paper's recipe, with some changed settings.

    Raises:
        BadInput: the config or the log is damaged.
    """
    made = read_config(folder)["made"]
    of = "paper_d" if "transformer_d" in folder.name else "paper_abc"
    wanted = asdict(preset(of, **{**LITERAL, **changes}).recipe)
    recipe = made.get("recipe")
    betas = tuple((recipe or {}).get("betas", Recipe.betas))  # older runs do not name them
    named = SEED.match(folder.name)
    return (
        isinstance(recipe, dict)
        and {**recipe, "betas": betas, "checkpoint_every": 0} == {**wanted, "checkpoint_every": 0}
        and made.get("preset") == of
        and named is not None
        and made.get("seed") == int(named[2])
        and max(read_losses(folder / LOG)["loss"], default=0) == wanted["steps"]
    )


def training_loss(folder: Path) -> Measured:
    """Return the loss of a transformer on fresh sequences, as ``models export`` measured it, in the stored precision.

    Raises:
        BadInput: there is none.
    """
    try:
        exported = read_config(folder)["made"]["exported"]
        return Measured.of(exported[f"loss_{exported['precision']}"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / CONFIG}: no loss of `models export` ({error!r})") from error


def first_steps_below(log: Path) -> dict[str, int | None]:
    """Return for every symbol the first logged step with a loss below 0.5; None if there is none."""
    losses = read_losses(log)
    return {part: next((s for s, loss in losses[part].items() if loss < EMERGED), None) for part in parts_of(losses)}


def crossings(log: Path) -> list[float | None]:
    """Return for every symbol the step at which its loss falls below 0.5, interpolated; None if it never does."""
    losses = read_losses(log)
    return [first_below(losses[part], EMERGED) for part in parts_of(losses)]
