"""What Inspect finds here: the tasks, and the provider of models."""

from inspect_ai.model import ModelAPI, modelapi

from retrieval_interp.llm.tasks import equations, functions, kingdoms, lives_with, relatives


@modelapi(name="hooked")
def hooked() -> type[ModelAPI]:
    """``hooked/NAME``: any HookedTransformer, a model directory or a pretrained one."""
    from retrieval_interp.llm.provider import HookedAPI  # brings in PyTorch, which other models do not need

    return HookedAPI


__all__ = ["equations", "functions", "hooked", "kingdoms", "lives_with", "relatives"]
