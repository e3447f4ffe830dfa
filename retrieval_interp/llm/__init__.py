"""Ask language models the questions of section 4 of the paper, with Inspect; needs the extra ``llm``."""

from circuits.errors import BadInput

try:
    import inspect_ai  # noqa: F401
except ImportError as error:
    raise BadInput("Inspect is not installed; install it with: pip install 'retrieval-interp[llm]'") from error
