# %% [markdown]
# # From prompts to heads
#
# The paper asks language models five kinds of questions (appendix A), in words, and opens small transformers that read
# vectors. Here both ends meet: a small language model that was trained on the words, opened with the same tools.
#
# Runs top to bottom in about a minute on two cores.

# %% [markdown]
# ## The questions

# %%
from retrieval_interp.prompts import formulation

equations = formulation("equations", steps=3)
question = equations.questions(1, seed=0)[0]
print(question.prompt)
print("\nanswer:", question.answer, "  chain:", " -> ".join(question.chain))

# %% [markdown]
# The other four speak of names, kingdoms, functions and relatives:

# %%
print(formulation("lives_with", steps=2).questions(1, seed=0)[0].prompt)

# %% [markdown]
# ## A model that answers them
#
# Six layers of four heads, trained here from scratch; one token for each word. `retrieval-interp llm ask --model hooked/equations`
# asks it hundreds of questions with Inspect, and so does `--model PROVIDER/MODEL` any hosted model.

# %%
from retrieval_interp import load

model, task, circuit = load("equations")
logits = model(question.prompt + "\n", prepend_bos=False)
print("it says:", model.to_string(logits[0, -1].argmax()))

# %% [markdown]
# Questions are a problem for the circuit tools: every symbol's token is a role. The loss is the chance of a wrong answer.

# %%
examples = task.examples(128, seed=1)
print(task.roles)
print(f"chance of a wrong answer: {task.losses(model(examples.inputs), examples).mean():.5f}")

# %% [markdown]
# ## Look
#
# Layer 3 on one question. Each token stands with its chain and role; chain 1 is the one that is asked about.

# %%
from circuits import attention_viewer

attention_viewer(model, examples, example=0, layer=3)

# %% [markdown]
# On average, from role to role: of 24 heads, which ones look from one equation to another, or from the question to one?

# %%
import pandas as pd

from circuits.model.attention import path_attention, possible_paths

paths = [path for path in possible_paths(examples.roles, 6, 4) if path.source != "*"]
strongest = pd.Series(path_attention(model, examples, paths), index=[str(path) for path in paths], name="attention")
within = "end|answer -> query|(?:pair1.*pair1|pair2.*pair2|pair3.*pair3)"
between = strongest[~strongest.index.str.contains(within)]
between.sort_values(ascending=False).head(12).round(2).to_frame()

# %% [markdown]
# ## The circuit
#
# `retrieval-interp discover equations` found it: four paths in 24 heads. The value travels from where the chain begins
# straight to the equation that is asked about, and from there to the answer.

# %%
from circuits import Circuit, evaluate, role_attention
from circuits.figures.diagram import circuit_diagram

print(*circuit.paths, sep="\n")
circuit_diagram(circuit, examples.roles, 6, role_attention(model, examples))

# %%
variants = {"unablated": Circuit(), "all heads replaced": circuit}
variants |= {f"without {path}": circuit.without(path, "uniform") for path in circuit.paths}
losses = evaluate(model, task, examples, list(variants.values())).mean(dim=(1, 2))
pd.Series(losses, index=list(variants), name="chance of a wrong answer").round(4).to_frame()

# %% [markdown]
# Two paths carry the value, and without either the model guesses among four numbers. The other two only tell heads above
# where to look; with all attention prescribed nobody misses them. So this is how the value travels, and not yet how it is
# found: [docs/language_models.md](../docs/language_models.md) says what is missing.

# %%
from circuits.explorer import explore

explore(model, task, circuit)

# %% [markdown]
# ## Any language model
#
# ```python
# from retrieval_interp.models.language import language_model
# from retrieval_interp.tasks.prompted import Prompted
#
# model = language_model("gpt2")  # whatever HookedTransformer.from_pretrained knows, or a local folder
# problem = Prompted(formulation("lives_with", steps=2), model.tokenizer)
# explore(model, problem)
# ```
#
# ## Exercises
#
# 1. In the explorer make L3H1 untouched, and all others in its layer too. Is the answer still found?
# 2. Draw `answer -> pair3.second` for L5H1. What does it say about the path that was there?
# 3. Ask the model two steps instead of three: `EquationsTask(n_steps=3).formulation` has the longest ones only, but
#    `formulation("equations", steps=2)` and `Prompted` make a problem of shorter ones.
