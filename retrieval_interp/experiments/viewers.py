"""Attention viewers of a model over its training, and of several models side by side."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.model.state import check_state
from circuits.model.transformer import Transformer
from circuits.task import Examples
from circuits.viewer import Frame, Viewer, attention_frame


@entrance
def over_training(
    models: Any, examples: Examples, example: int = 0, layer: int | None = None, head: int | None = None
) -> Viewer:
    """Show attention on one example at several training steps, with a slider.

    Args:
        models: pairs of training step and model, as from ``through_training``. They are read one after the other, so an
            iterator may yield the same model each time, with other weights.
        examples: examples of their task.
        example: as for ``attention_viewer``, like ``layer`` and ``head``.
        layer: by default all.
        head: by default all.

    Raises:
        BadInput: there is no model, or no such example, layer or head, or a list has the same model at several steps.
    """
    if isinstance(models, Transformer | Mapping) or not isinstance(models, Iterable):
        raise BadInput(f"the models are of type {type(models).__name__}; expected pairs of training step and model")
    if isinstance(models, Sequence):
        if not all(isinstance(one, Sequence) and len(one) == 2 for one in models):
            raise BadInput("the models are no pairs of training step and model; expected [(step, model), ...]")
        if len({id(model) for _, model in models}) < len(models):
            raise BadInput("the list has one model at several steps, with its last weights; expected an iterator")
    frames = []
    for step, model in models:
        check_state(model)
        frames.append(attention_frame(model, examples, example, layer, head, step))
    if not frames:
        raise BadInput("there is no step of training to show")
    return Viewer({"": tuple(frames)})


def side_by_side(viewers: Any) -> Viewer:
    """Show several viewers, ``{title: viewer}``, side by side, with one slider for all.

    Raises:
        BadInput: there is no viewer, one of them already has several panels, or their steps differ.
    """
    if not isinstance(viewers, Mapping) or not viewers or not all(isinstance(one, Viewer) for one in viewers.values()):
        raise BadInput(f"the viewers are {viewers!r:.60}; expected {{title: viewer}}, with at least one")
    panels: dict[str, tuple[Frame, ...]] = {}
    for title, viewer in viewers.items():
        if len(viewer.panels) > 1:
            raise BadInput(f"{title!r} is several viewers already; expected one")
        (panels[title],) = viewer.panels.values()
    steps = {title: [one.step for one in frames] for title, frames in panels.items()}
    first, *others = steps
    for other in others:
        if steps[other] != steps[first]:
            raise BadInput(f"{other!r} shows steps {steps[other]}, {first!r} {steps[first]}; expected the same ones")
    return Viewer(panels)
