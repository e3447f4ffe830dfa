"""What is no whole number, in a process of its own: here all annotations are checked before the functions see it."""

import subprocess
import sys

SCRIPT = """
from circuits import *
from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.models.presets import Architecture

task = RetrievalTask(2)
model = VectorTransformer(Architecture(2, 1, 16, 8).config(task), seed=0)
circuit = Circuit({Head(1, 0): OneHot({"query": "pair1.second"})})
of_a_circuit = against_chance, path_patching, self_consistency, validate
of_a_model = content_or_position, discover, interchange, mlp_ablations
calls = [(one, (model, task, circuit)) for one in of_a_circuit] + [(one, (model, task)) for one in of_a_model]
for work, given in calls:
    for name in ("n_examples", "seed"):
        for value in ("a", 2.5, True, -1, None):
            try:
                work(*given, **{name: value}, progress=lambda share: None)
            except BadInput as error:
                assert repr(value) in str(error) and "expected" in str(error) and "\\n" not in str(error), error
            else:
                raise AssertionError(f"{work.__name__} takes {name}={value!r}")
for tokenizer in (None, "gpt2"):
    try:
        language_task("ioi", tokenizer)
    except BadInput as error:
        assert str(error) == f"ioi: the tokenizer is {tokenizer!r}; expected a tokenizer of transformers", error
    else:
        raise AssertionError(tokenizer)
print("refused")
"""


def test_a_number_of_examples_and_a_seed_are_whole_numbers_and_a_tokenizer_is_one():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("refused\n", 0), ran.stderr
