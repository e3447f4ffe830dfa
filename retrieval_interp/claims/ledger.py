"""The ledger: each quantitative claim of the paper with the measurement of this project.

The measurements are read from the tables in ``data/``: configs and logs of training, ``report.json`` of ``discover``,
and the attention over training. Claims on A to D have a row for the transformers of the paper's recipe, and one for
those of recipe ``small``. Claims without an experiment are marked as not measured. A missing table is an error.
"""

from pathlib import Path

from circuits.errors import BadInput
from retrieval_interp.claims.ablated import appendix_e
from retrieval_interp.claims.claim import Claim
from retrieval_interp.claims.departures import departures
from retrieval_interp.claims.depth import section_5
from retrieval_interp.claims.emerging import section_9
from retrieval_interp.claims.found_circuit import found_circuit
from retrieval_interp.claims.found_circuits import fewest_heads, section_8
from retrieval_interp.claims.learning import section_7
from retrieval_interp.claims.tables import PAPER, SMALL, check_all_there
from retrieval_interp.models.model_dir import CONFIG, REPORT

SECTION_4 = [
    Claim("4", "language models solve the equations formulation", "almost perfectly for D up to 5"),
    Claim("4", "language models solve the four other formulations", "great performance (lives-with, kingdoms: D = 5)"),
]


def ledger(data: Path) -> list[Claim]:
    """Return all rows, in the order of the paper.

    Args:
        data: the folder of the trained transformers and their tables.

    Raises:
        BadInput: tables are missing (the message names all of them), or a table is damaged.
    """
    try:
        check_all_there(data)
        found = [
            (models, {name: found_circuit(data / folder) for name, folder in models.folders.items()})
            for models in (PAPER, SMALL)
        ]
        return [
            *SECTION_4,
            *section_5(data),
            *section_7(data),
            *(claim for models, circuits in found for claim in section_8(data, models, circuits)),
            fewest_heads(data),
            *(claim for models, circuits in found for claim in section_9(data, models, circuits["D"])),
            *departures(data),
            *(claim for models, circuits in found for claim in appendix_e(data, models, circuits)),
        ]
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(f"{data}: a {REPORT} or {CONFIG} lacks a value that a claim needs ({error!r})") from error
