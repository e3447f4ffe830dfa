"""Model cards: a transformer's architecture, training, losses and circuit, read from its model directory."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp.models.model_dir import CIRCUIT, CONFIG, REPORT, read_config, task_from
from retrieval_interp.models.presets import Recipe
from retrieval_interp.reproduction.stored_report import check_is_of, circuit_found, read_report
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.words import WordsTask
from retrieval_interp.theory.depth import bound_paper
from retrieval_interp.theory.information_flow import layers_until


def model_card(folder: Path, address: str) -> str:
    """Return the card of a model directory: Markdown with the front matter of a Hugging Face repository.

    Args:
        folder: the model directory: a config, and optionally ``circuit.yaml`` and ``report.json``. The report comes
            from ``validate --json`` or ``discover --report``; if no circuit was found, there is a report only.
        address: the argument of ``load`` in the card's example.

    Raises:
        BadInput: a file is damaged, or the report belongs to another circuit.
    """
    try:
        return _filled(folder, address)
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, jinja2.UndefinedError) as error:
        raise BadInput(f"{folder}: {CONFIG} or {REPORT} lacks what a card needs ({error})") from error


def _filled(folder: Path, address: str) -> str:
    from huggingface_hub import ModelCard, ModelCardData  # imports an HTTP library

    config = read_config(folder)
    task = task_from(config, folder / CONFIG)
    made = config.get("made", {})
    loss = made.get("exported", {}).get("loss_" + made.get("exported", {}).get("precision", "float32"))
    circuit = load_circuit(folder / CIRCUIT) if (folder / CIRCUIT).exists() else None
    report = read_report(folder / REPORT) if (folder / REPORT).exists() else None
    searched = None if report is None or circuit_found(report) else report  # a report of a discovery without a circuit
    if report is not None and not searched:
        check_is_of(report, circuit, folder)
    retrieves = not isinstance(task, WordsTask)
    data = ModelCardData(
        library_name="transformer-lens",
        license="mit",
        tags=["mechanistic-interpretability", *["retrieval-problem"] * retrieves, "retrieval-interp"],
    )
    heads = config["architecture"]["n_heads"]
    contents: dict[str, Any] = {
        "name": Path(address).name,
        "address": address,
        "task": task,
        "retrieves": retrieves,
        "architecture": config["architecture"],
        "heads": "one head" if heads == 1 else f"{heads} heads",
        "made": made,
        "recipe": Recipe(**made["recipe"]) if "recipe" in made else None,
        "versions": ", ".join(f"{name} {version}" for name, version in made.get("versions", {}).items()),
        "loss": loss,
        "components": ", ".join(f"{name} {value:.4f}" for name, value in loss["components"].items()) if loss else "",
        "precision": made.get("exported", {}).get("precision"),
        "circuit": circuit,
        "looks": (report or {}).get("content_or_position", {}).get("heads", {}),
        "useful_layers": len({head.layer for head in circuit.heads_with_paths}) if circuit else 0,
        "bound": bound_paper(task.n_steps) if isinstance(task, RetrievalTask) else None,
        "layers": max(layers_until(task.layout, role, part, causal=True) or 0 for part, role in task.read_at.items()),
        "report": None if searched else report,
        "searched": searched,
    }
    template = (files("retrieval_interp") / "templates" / "model_card.md.jinja").read_text(encoding="utf-8")
    return str(ModelCard.from_template(data, template_str=template, **contents)).rstrip() + "\n"
