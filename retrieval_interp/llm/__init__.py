"""Language models on the questions of the paper's section 4, with Inspect; needs the extra ``llm``."""

from circuits.errors import BadInput

try:
    import inspect_ai  # noqa: F401
except ImportError as error:
    raise BadInput(
        "language models are asked through Inspect; install it with: pip install 'retrieval-interp[llm]'"
    ) from error
