"""The command that shows attention."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import LanguageTaskName, Seed, runs_model
from retrieval_interp.cli.terminal import progress_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from circuits.model.transformer import Transformer
    from circuits.task import Task
    from circuits.viewer import Viewer

app = typer.Typer()
PAGE = "attention.html"


@app.command(epilog="Example: retrieval-interp view transformer_a --layer 8")
@runs_model
def view(
    model_dirs: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL_DIR ...",
            help="Model directories, or names such as transformer_a; several are shown side by side.",
        ),
    ],
    out: Annotated[Path, typer.Option(help=f"Folder for {PAGE}.")] = Path("reports"),
    layer: Annotated[int | None, typer.Option(help="Layer to show, counted from 0 (default: all).")] = None,
    head: Annotated[int | None, typer.Option(help="Head of that layer to show, counted from 0 (default: all).")] = None,
    training: Annotated[bool, typer.Option("--training", help="Show every checkpoint, with a slider.")] = False,
    examples: Annotated[int, typer.Option(min=1, max=50, help="Number of examples to show.")] = 3,
    by: Annotated[
        str | None, typer.Option(help="Group that splits the average attention: slot or position (default: the first).")
    ] = None,
    seed: Seed = 0,
    language_task: LanguageTaskName = None,
) -> None:
    """Write attention maps and viewers into one HTML file that works offline (Appendix C)."""
    from circuits.heads import check_choice
    from circuits.utils.files import check_writable, write_atomically
    from retrieval_interp.models import library
    from retrieval_interp.models.checkpoints import load_model
    from retrieval_interp.models.model_dir import some_checkpoints

    check_writable(out / PAGE)
    short = [Path(name).name for name in model_dirs]
    names = {name if short.count(name) == 1 else path: path for name, path in zip(short, model_dirs, strict=True)}
    if len(names) < len(model_dirs):
        twice = next(name for name in model_dirs if model_dirs.count(name) > 1)
        raise BadInput(f"{twice} is given twice; expected different models")
    folders: dict[str, Path] = {}
    if language_task is not None:
        if training:
            raise BadInput("--training shows a run with its own task; leave out --training or --task")
        models, task = _on_task(names, language_task)
        for model in models.values():
            check_choice(layer, head, model.cfg.n_layers, model.cfg.n_heads)
    else:
        folders = {name: library.find(folder) for name, folder in names.items()}
        task = _same("task", {name: library.own_task(folder) for name, folder in folders.items()})
        for folder in folders.values():
            check_choice(layer, head, *library.own_size(folder))
        newest = {}  # an unfinished run has weights in its checkpoints only
        if training:
            newest = {name: [*some_checkpoints(folder).values()][-1] for name, folder in folders.items()}
        models = {name: load_model(folder, newest.get(name))[0] for name, folder in folders.items()}
    from circuits.viewer import attention_viewer
    from retrieval_interp.experiments.viewers import over_training, side_by_side

    shown = task.examples(examples, seed)
    if by is not None:
        shown.roles.group(by, shown.roles.names[0])  # raises before anything is computed
    viewers = []
    with progress_bar("reading attention") as progress:
        for example in range(examples):
            panels = {}
            for name, model in models.items():
                if training:
                    checkpoints = library.through_training(folders[name])
                    panels[name] = over_training(checkpoints, shown, example, layer, head)
                else:
                    panels[name] = attention_viewer(model, shown, example, layer, head)
                progress((example + len(panels) / len(models)) / examples)
            viewers.append(side_by_side(panels))
    write_atomically(out / PAGE, _page(models, task, viewers, seed, by))
    typer.echo(f"The attention maps are at {out / PAGE}")


def _page(
    models: "Mapping[str, Transformer]", task: "Task", viewers: "Sequence[Viewer]", seed: int, by: str | None
) -> str:
    """Return the page: average attention from role to role, split by a group, and attention on a few examples."""
    from circuits.attention import ATTENTION_EXAMPLES, role_attention
    from circuits.figures.page import figure_element, render_page
    from circuits.given import examples_of
    from circuits.viewer import elements
    from retrieval_interp.experiments.attention_figure import attention_figure

    examples = examples_of(task, ATTENTION_EXAMPLES, seed)
    order, group = examples.roles.in_order, by or examples.roles.main_group
    figures = {}
    for n, (name, model) in enumerate(models.items()):
        attention = role_attention(model, examples.to(next(model.parameters()).device), group).cpu()
        figures[name] = figure_element(attention_figure(attention, task.roles, order, group), f"role-attention-{n}")
    contents = {"averaged": len(examples), "group": group, "figures": figures, "viewers": elements(viewers)}
    return render_page("attention.html.jinja", "retrieval_interp", **contents)


def _on_task(names: "Mapping[str, str]", task: str) -> "tuple[dict[str, Transformer], Task]":
    """Return language models, and a language task for their tokenizer."""
    from retrieval_interp.language_tasks.language_task import Metric
    from retrieval_interp.language_tasks.metric import MetricTask
    from retrieval_interp.language_tasks.registry import check_name, language_task
    from retrieval_interp.models.language import language_model

    check_name(task)
    models: dict[str, Transformer] = {name: language_model(folder) for name, folder in names.items()}
    _same("tokenizer", {name: model.tokenizer.get_vocab() for name, model in models.items()})
    first = next(iter(models.values()))
    prompts = language_task(task, first.tokenizer)
    return models, MetricTask(prompts, first, Metric.logit_difference, 1.0)  # only its examples are shown


def _same(what: str, values: dict[str, Any]) -> Any:
    """Return what the models have in common."""
    first, *others = values
    for other in others:
        if values[other] != values[first]:
            raise BadInput(f"{other} has another {what} than {first}; models side by side must have the same {what}")
    return values[first]
