"""A page with the attention of all heads (paper, Appendix C)."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from circuits.attention import ATTENTION_EXAMPLES, split_attention
from circuits.figures.attention_figure import attention_figure
from circuits.figures.page import figure_element, render_page
from circuits.given import examples_of
from circuits.model.transformer import Transformer
from circuits.task import Task
from circuits.viewer.viewer import Viewer, elements


def attention_page(
    models: Mapping[str, Transformer],
    task: Task,
    viewers: Sequence[Viewer],
    seed: int,
    by: str | None = None,
) -> str:
    """Return a self-contained page: average attention from role to role, and attention on a few examples.

    Args:
        models: any HookedTransformers or TransformerBridges, by name.
        task: the task of the models, with examples and roles.
        viewers: one viewer for each example.
        seed: the seed of the examples.
        by: the group whose labels split attention; by default the first group of the examples.

    Raises:
        BadInput: the examples do not have the group.
    """
    examples = examples_of(task, ATTENTION_EXAMPLES, seed)
    order, group = examples.roles.in_order, by or examples.roles.main_group
    figures: dict[str, Markup] = {}
    for name, model in models.items():
        attention = split_attention(model, examples.to(next(model.parameters()).device), group).cpu()
        figure = attention_figure(attention, task.roles, order, group)
        figures[name] = figure_element(figure, f"role-attention-{len(figures)}")
    return render_page(
        "attention.html.jinja",
        averaged=len(examples),
        group=group,
        figures=figures,
        viewers=elements(viewers),
    )
