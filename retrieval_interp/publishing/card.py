"""Model cards: a transformer's architecture, training, losses and circuit, read from its model directory."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import huggingface_hub
import jinja2

from circuits.errors import BadInput
from circuits.task import LaidOut
from retrieval_interp.models.library import own_circuit
from retrieval_interp.models.model_dir import CONFIG, REPORT, read_config, task_from
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.words import WordsTask
from retrieval_interp.theory.depth import bound_paper
from retrieval_interp.theory.information_flow import layers_until


def model_card(folder: Path, address: str) -> str:
    """Return the card of a model directory: Markdown with the front matter of a Hugging Face repository.

    The directory may have ``circuit.yaml`` and ``report.json``, or if no circuit was found the report only. BadInput if
    a file is damaged, or the report belongs to another circuit.

    Args:
        folder: the model directory.
        address: the argument of ``load`` in the card's example.
    """
    from circuits.report.strip import strip  # imports PyTorch, which is slow
    from retrieval_interp.reproduction import report_of

    config, circuit = read_config(folder), own_circuit(folder)
    task, made = task_from(config, folder / CONFIG), config["made"]
    report = report_of(folder)
    retrieves = not isinstance(task, WordsTask)
    tags = ["mechanistic-interpretability", *["retrieval-problem"] * retrieves, "retrieval-interp"]
    read = task.read_at.items() if isinstance(task, LaidOut) else ()
    data = huggingface_hub.ModelCardData(library_name="transformer-lens", license="mit", tags=tags)
    template = (files("retrieval_interp") / "templates" / "model_card.md.jinja").read_text(encoding="utf-8")
    try:
        exported = made.get("exported", {})
        contents: dict[str, Any] = {
            **{"name": Path(address).name, "address": address, "task": task, "retrieves": retrieves},
            **{"architecture": config["architecture"], "made": made, "exported": exported},
            "loss": exported[f"loss_{exported['precision']}"] if exported else None,
            **{"circuit": circuit, "report": report, "strip": strip(report) if report else ()},
            "searched": report and report.discovery and report.discovery.combined.decision == "above",
            "useful_layers": len({head.layer for head in circuit.heads_with_paths}) if circuit else 0,
            "bound": bound_paper(task.n_steps) if isinstance(task, RetrievalTask) else None,
            "layers": [layers_until(task.layout, role, one, causal=True) or 0 for one, role in read] or [0],
        }
        card = huggingface_hub.ModelCard.from_template(data, template_str=template, **contents)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, jinja2.UndefinedError) as error:
        raise BadInput(f"{folder}: {CONFIG} or {REPORT} lacks what a card needs ({error})") from error
    return str(card).rstrip() + "\n"
