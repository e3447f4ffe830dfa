"""A model card: what a trained transformer is, how it was made, its losses and its circuit, read from its folder."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp.models.model_dir import CIRCUIT, CONFIG, REPORT, read_config, task_from
from retrieval_interp.models.presets import Recipe
from retrieval_interp.reproduction.stored_report import check_is_of, found, read_report
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.theory.depth import bound_paper
from retrieval_interp.theory.information_flow import layers_until


def model_card(folder: Path, address: str) -> str:
    """The card of a model directory, as Markdown with the front matter of a Hugging Face repository.

    Args:
        folder: with a config, and where they exist ``circuit.yaml`` and ``report.json`` (of ``validate --json``, or of
            ``discover --report``, which stands alone where no circuit was found).
        address: what to give to ``load``.

    Raises:
        BadInput: one of the files is damaged, or the report is of another circuit.
    """
    try:
        return _filled(folder, address)
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, jinja2.UndefinedError) as error:
        raise BadInput(f"{folder}: {CONFIG} or {REPORT} lacks what a card needs ({error})") from error


def _filled(folder: Path, address: str) -> str:
    from huggingface_hub import ModelCard, ModelCardData  # brings in what talks to a network

    config = read_config(folder)
    task = task_from(config, folder / CONFIG)
    made = config.get("made", {})
    loss = made.get("exported", {}).get("loss_" + made.get("exported", {}).get("precision", "float32"))
    circuit = load_circuit(folder / CIRCUIT) if (folder / CIRCUIT).exists() else None
    report = read_report(folder / REPORT) if (folder / REPORT).exists() else None
    searched = None if report is None or found(report) else report  # of the best that was found, which is no circuit
    if report is not None and not searched:
        check_is_of(report, circuit, folder)
    data = ModelCardData(
        library_name="transformer-lens",
        license="mit",
        tags=["mechanistic-interpretability", "retrieval-problem", "retrieval-interp"],
    )
    heads = config["architecture"]["n_heads"]
    contents: dict[str, Any] = {
        "name": Path(address).name,
        "address": address,
        "task": task,
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
        "useful_layers": len({head.layer for head in circuit.useful_heads}) if circuit else 0,
        "bound": bound_paper(task.n_steps) if isinstance(task, RetrievalTask) else None,
        "layers": max(layers_until(task.layout, role, part, causal=True) or 0 for part, role in task.read_at.items()),
        "report": None if searched else report,
        "searched": searched,
    }
    template = (files("retrieval_interp") / "templates" / "model_card.md.jinja").read_text(encoding="utf-8")
    return str(ModelCard.from_template(data, template_str=template, **contents)).rstrip() + "\n"
