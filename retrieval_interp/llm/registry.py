"""The entry point for Inspect: the tasks and the model provider."""

from inspect_ai.model import ModelAPI, modelapi

from retrieval_interp.llm.tasks import TASKS


@modelapi(name="hooked")
def hooked() -> type[ModelAPI]:
    """Return the provider of ``hooked/NAME``: a language model of TransformerLens, ours or a pretrained one."""
    from retrieval_interp.llm.provider import HookedAPI  # imports PyTorch, which other models do not need

    return HookedAPI


__all__ = ["TASKS", "hooked"]
