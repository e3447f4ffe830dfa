# %% [markdown]
# # From prompts to heads
#
# The paper asks language models five kinds of questions in words (appendix A), and analyses small transformers that read
# vectors. This notebook connects the two. It opens a small language model that was trained on the words.
#
# The notebook runs in about a minute on two cores.

# %% [markdown]
# ## The questions

# %%
from retrieval_interp import formulation

equations = formulation("equations", steps=3)
question = equations.questions(1, seed=0)[0]
print(question.prompt)
print("\nanswer:", question.answer, "  chain:", " -> ".join(question.chain))

# %% [markdown]
# The other four kinds are about names, kingdoms, functions and relatives:

# %%
print(formulation("lives_with", steps=2).questions(1, seed=0)[0].prompt)

# %% [markdown]
# ## A model that answers them
#
# The model has six layers with four heads each, and one token for each word. It was trained from scratch for this project.
# `retrieval-interp llm ask --model hooked/equations` asks it hundreds of questions with Inspect. The same command with
# `--model PROVIDER/MODEL` asks any hosted model.

# %%
from retrieval_interp import load

model, task, circuit = load("equations")
logits = model(question.prompt + "\n", prepend_bos=False)
print("the model answers:", model.to_string(logits[0, -1].argmax()))

# %% [markdown]
# For the circuit tools, these questions are a task in which the token of every symbol has a role. The loss is the
# probability of a wrong answer. The lines of a chain are `pair1`, which defines the variable that is asked about, to `pair3`,
# which holds the value. Each has a `first` (the left side), a `second` (the right side) and an `end` (the line break). The
# roles `a.second` to `l.second` name the right sides of all twelve lines by the variable on the left. So a path can lead to
# a line of another chain.

# %%
examples = task.examples(128, seed=1)
print(*task.roles)
print(f"probability of a wrong answer: {task.losses(model(examples.inputs), examples).mean():.5f}")

# %% [markdown]
# ## Look at the attention
#
# This is layer 3 on one question. Each token is labelled with its chain and role. Chain 1 is the one that is asked about.

# %%
from circuits import attention_viewer

attention_viewer(model, examples, example=0, layer=3)

# %% [markdown]
# Which of the 24 heads attend from one equation to another, or from the question to an equation? These are the twelve
# strongest, as averages from role to role.

# %%
import pandas as pd

from circuits import role_attention

attention = role_attention(model, examples)  # [layer, head, query role, key role]
strongest = {
    f"L{layer}H{head} {query} -> {key}": attention[layer, head, q, k].item()
    for layer in range(model.cfg.n_layers)
    for head in range(model.cfg.n_heads)
    for q, query in enumerate(task.roles)
    for k, key in enumerate(task.roles)
    if key.startswith("pair") and query.split(".")[0] != key.split(".")[0]
}
pd.Series(strongest, name="attention").nlargest(12).round(2).to_frame()

# %% [markdown]
# ## The circuit
#
# `retrieval-interp discover equations` found this circuit: nine paths in five of 24 heads. L3H1 moves each value one equation
# further. L4H0, L4H1 and L4H2 attend to the lines of the three *other* chains. L5H1 takes the value to `answer`.

# %%
from circuits import circuit_diagram

print(*circuit.paths, sep="\n")
circuit_diagram(circuit, examples.roles, model.cfg.n_layers, attention)

# %%
from circuits import Circuit, evaluate

variants = {"unablated": Circuit(), "all heads replaced": circuit}
variants |= {f"without {path}": circuit.without(path, "uniform") for path in circuit.paths}
losses = evaluate(model, task, examples, list(variants.values())).mean(dim=(1, 2))
pd.Series(losses, index=list(variants), name="probability of a wrong answer").round(4).to_frame()

# %% [markdown]
# Without the path of L5H1, or that of L3H1 from `pair2.second`, the model guesses among four numbers. The paths to the other
# chains cost less, each by itself. [docs/language_models.md](../docs/language_models.md) tests how the model uses them: it
# answers with the value that none of the other chains has.

# %%
from circuits import explore

explore(model, task, circuit)

# %% [markdown]
# ## Any language model
#
# ```python
# from retrieval_interp import Prompted, formulation, language_model
#
# model = language_model("gpt2")  # any name of the Hugging Face Hub, or a local folder
# task = Prompted(formulation("lives_with", steps=2), model.tokenizer)
# explore(model, task)
# ```
#
# ## Exercises
#
# 1. Make L3H1 and the other heads of its layer intact in the explorer. Does the model still find the answer?
# 2. Draw `answer -> pair3.second` for L5H1. What does the result say about the path that was there before?
# 3. Ask for two steps instead of three: `Prompted(formulation("equations", steps=2), model.tokenizer)`. Is the loss as low?
