# %% [markdown]
# # The first circuit
#
# This notebook tests a hypothesis about the attention heads of a 12-layer transformer. The transformer was trained on the
# **retrieval problem**. Four chains A → B → C → D are cut into pairs, and the pairs stand in *blocks*, last step first:
#
#     [ C D of every chain ]   [ B C of every chain ]   [ A B of every chain ]   [ A of every chain ]
#            pair3                    pair2                    pair1                   query
#
# At each query A the model has to answer B, C and D. The code calls the symbols A, B, C, D of a chain x0, x1, x2, x3. Each
# block has the chains in another random order; the place of a chain in a block is its *slot*.
#
# We look at the model's attention, state a hypothesis about its heads, and ask three questions. Does the hypothesis account
# for the output? Is every path in it needed? Is anything missing?
#
# The notebook runs in under a minute.

# %%
from retrieval_interp import load

model, task, circuit = load("transformer_a")
print(f"{model.cfg.n_layers} layers with {model.cfg.n_heads} head each")
print("roles:", *task.roles)

# %% [markdown]
# `model` is a `HookedTransformer`, so everything from TransformerLens works: caches, hooks, `start_at_layer`. It reads
# vectors instead of tokens. `task` draws examples. It also gives the position of every **role** in every chain: the
# query, and both members of each pair.

# %%
examples = task.examples(256, seed=1)
answers, cache = model.run_with_cache(examples.inputs)
print("attention of layer 5:", tuple(cache["pattern", 5].shape))
print("loss for B, C, D:    ", task.losses(answers, examples).mean(dim=0).tolist())

# %% [markdown]
# ## Step 1: look at the attention
#
# How much does each role attend to each other role of its own chain? The maps show averages over examples and chains. Look
# at the bottom row, which is the query. L2H0 gives most of its attention to the second member of the first pair, `pair1.second`.

# %%
from circuits import role_attention
from retrieval_interp.experiments.attention_figure import attention_figure

attention_figure(role_attention(model, examples), task.roles, examples.roles.in_order)

# %% [markdown]
# A circuitsvis viewer shows single examples, token by token. Tokens are labelled `chain:role`. Here it shows layer 4; without
# `layer` it shows all heads. Point at a head to enlarge it; click to lock it.

# %%
from circuits import attention_viewer

attention_viewer(model, examples, example=0, layer=4)

# %% [markdown]
# ## Step 2: state a hypothesis
#
# A `Circuit` gives each head a mechanism. An `idle` head is supposed to write nothing that matters: its output is its average.
# Heads with a fixed pattern (`uniform`, `identity`, `previous`, `mean`, `map`) attend alike in every example. One-hot heads have paths from role to role, in all
# slots or in some of them: L2H0 has its path in three of the four slots, which the average above does not show. This circuit is
# in `circuit.yaml` beside the weights, and you can write your own. In the diagram below, dotted arrows are fixed patterns that
# lead from role to role. The two members of a pair stand side by side, so a head can join them by position alone.

# %%
from circuits.figures.diagram import circuit_diagram

for head, mechanism in circuit.heads.items():
    print(head, mechanism)
circuit_diagram(circuit, examples.roles)

# %% [markdown]
# How does the model solve single examples? Letters stand for symbols. Go through the steps with the buttons or the arrow keys. In
# some chains the query looks where no path of the circuit leads: these examples come first in the list, and the sentence says which
# head had written there what the query fetches. The boxes at the right are what can be read at the query after each layer (logit lens).

# %%
from circuits import step_by_step

step_by_step(model, task, circuit)

# %% [markdown]
# ## Step 3: test it
#
# `evaluate` replaces the attention patterns of **every** head with those of the hypothesis and measures the loss. It removes
# its hooks afterwards.

# %%
from circuits import Circuit, evaluate

unablated, combined = evaluate(model, task, examples, [Circuit(), circuit]).mean(dim=(1, 2)).tolist()
print(f"unablated {unablated:.4f}, every head replaced {combined:.4f}")
print("A model that always answers the mean scores 1. A model that guesses among the four candidates scores 0.75.")

# %% [markdown]
# Is every path needed? Remove the one in the highest layer by making its row uniform.

# %%
without = circuit.without(circuit.paths[-1], "uniform")
losses = evaluate(model, task, examples, [without])[0].mean(dim=0)
dict(zip(task.loss_components, losses.tolist()))

# %% [markdown]
# `validate` runs these and other checks on fresh examples:
#
# - *solves*: every head is replaced or idle, and the loss stays low;
# - *agrees*: the circuit's outputs are the model's;
# - *faithful*: the circuit's heads stay intact, and the outputs of all others are ablated;
# - *complete*: heads of the circuit are knocked out, in the circuit and in the model, and the losses are compared;
# - *carries*: the answer can flow along the paths, and each head finds its targets by itself;
# - *minimal*: without any path, or with any positional head idle, the loss rises.

# %%
from circuits import validate

report = validate(model, task, circuit, n_examples=256, seed=2)
for verdict in report.verdicts:
    print(verdict.decision, verdict.name, "-", verdict.sentence)

# %%
report.paths_table().round(3)

# %% [markdown]
# A path matters *directly* if the loss rises without it, and *indirectly* if the loss stays low while the heads above have
# their patterns replaced, but rises if these heads compute their own attention: the path only tells them where to look.
# `report.notes` says which other circuits do as well, and what random heads do.

# %%
report.plot()

# %% [markdown]
# ## Explore
#
# The explorer does the same with clicks. Click an arrow to remove it, and again to bring it back. Click a head to change its
# mechanism. The losses follow at once, measured on 32 examples; a button measures them on 1,024. The button *minimal?* tests
# whether each path is needed, and *save* writes the circuit. The keyboard works, too, with Tab and Enter.

# %%
from circuits import explore

explore(model, task, circuit)

# %% [markdown]
# ## Where does the hypothesis come from?
#
# The command `retrieval-interp discover transformer_a` found it. In a notebook, `circuits.discover(model, task)` does the
# same in two or three minutes on two cores. It keeps every change that it tried, with the loss, and whether it was taken.
#
# ## Exercises
#
# `from circuits import Head, OneHot` gives the mechanism with paths. Simple mechanisms have names, such as `"identity"`.
#
# 1. Retarget the path in the highest layer: `circuit.retargeted(circuit.paths[-1], "pair2.second")`. Which partial losses rise?
# 2. L2H0 finds its symbol in three of four slots. Let it find the symbol in all of them, with
#    `Circuit({**circuit.heads, "L2H0": {"query": "pair1.second"}})`. Does the loss rise or fall? Where does the model get the
#    fourth symbol from?
# 3. Add a path that does nothing. Which statement of `validate` notices it?
# 4. Give an idle head the pattern `"previous"`. Does the circuit still solve the task? Which statement notices the head?
