# %% [markdown]
# # The first circuit
#
# A 12-layer transformer was trained on the **retrieval problem**: several chains A → B → C → D stand interleaved in one
# sequence, cut into pairs, the last step first, and at each query A it has to answer B, C and D. In this notebook we look
# at its attention, state a hypothesis about its heads, and find out whether the hypothesis is the circuit, all of the
# circuit, and nothing but the circuit.
#
# Runs top to bottom in about a minute on two cores.

# %%
from retrieval_interp import load

model, task, circuit = load("transformer_a")
model.cfg.n_layers, model.cfg.n_heads, task.roles

# %% [markdown]
# `model` is a `HookedTransformer`, so everything you know from TransformerLens works: caches, hooks, `start_at_layer`.
# It reads vectors instead of tokens. `task` draws examples, with the position of every **role** in every chain: the
# query, and both members of each pair.

# %%
examples = task.examples(256, seed=1)
answers, cache = model.run_with_cache(examples.inputs)
print("attention of layer 5:", tuple(cache["pattern", 5].shape))
print("loss for B, C, D:    ", task.losses(answers, examples).mean(dim=0).tolist())

# %% [markdown]
# ## Step 1: look
#
# Averaged over examples and chains, how much does each role attend to each other role of its own chain? Every chain stands
# at one of four **slots** of its block, so each role (across) has four columns. Look at the row of the query, at the bottom.
# L2H0 finds the second member of the first pair at three of four slots; an average over the slots would hide that.

# %%
from circuits.model.attention import attention_by_group
from circuits.figures.diagram import circuit_diagram
from circuits.figures.attention_figure import attention_figure

attention = attention_by_group(model, examples, "slot")
order = examples.roles.in_order
attention_figure(attention, task.roles, order, "slot")

# %% [markdown]
# The same on one example, token by token (`chain:role`), in a circuitsvis viewer: here layer 4 alone. Without `layer` it
# shows all heads: point at one to enlarge it, click to lock it.

# %%
from circuits import attention_viewer

attention_viewer(model, examples, example=0, layer=4)

# %% [markdown]
# ## Step 2: a hypothesis
#
# A `Circuit` says for each head what it does: nothing that matters (`Uniform`, `Identity`), the same in every example
# (`Previous`, or `FixedPattern` numbers such as its average), or `OneHot` paths from role to role, perhaps on some slots only.
# This one stands in `circuit.yaml` beside the weights; you can write your own. Paler arrows are fixed patterns that lead
# from role to role: the members of a pair stand beside each other, so a head that joins them needs to know positions only.

# %%

for head, mechanism in circuit.heads.items():
    print(head, mechanism)
circuit_diagram(circuit, examples.roles, model.cfg.n_layers)

# %% [markdown]
# ## Step 3: put it to the test
#
# Replace the attention of **every** head by what the hypothesis says, and measure the loss. The hooks are gone again
# afterwards.

# %%
from circuits import Circuit, evaluate

unablated, ablated = evaluate(model, task, examples, [Circuit(), circuit]).mean(dim=(1, 2)).tolist()
print(f"unablated {unablated:.4f}, every head replaced {ablated:.4f}; predicting nothing would score 1, guessing 0.75")

# %% [markdown]
# Is every path needed? Take one away, the one at the top, by making its row uniform.

# %%
without = circuit.without(circuit.paths[-1], "uniform")
losses = evaluate(model, task, examples, [without])[0].mean(dim=0)
dict(zip(task.loss_components, losses.tolist()))

# %% [markdown]
# `validate` does all of it at once, on fresh examples: each head alone, all together, every path taken away.

# %%
from circuits import validate

report = validate(model, task, circuit, n_examples=256, seed=2)
for verdict in report.verdicts:
    print(verdict.outcome, verdict.step, "-", verdict.sentence)

# %%
report.paths_table().round(3)

# %% [markdown]
# `needed: directly` means that the circuit fails without the path. `needed: enabling` means that the path only tells the
# heads above where to attend: with their attention prescribed nobody misses it, but left to themselves they go astray. `rivals` are roles to which the path could as well lead.

# %%
from circuits.validation.loss_figures import loss_figure

loss_figure(report)

# %% [markdown]
# ## Explore
#
# The same, to click on. An arrow goes when it is clicked, and comes back at the next click; a head goes through uniform,
# identity, previous, what the hypothesis says, and untouched; the losses follow at once, on 32 examples (`exact`: on 1,024). Tab and
# Enter do as well as the mouse. `minimal?` asks of every path whether it is needed, `save` and `report` write files.

# %%
from circuits.explorer import explore

explore(model, task, circuit)

# %% [markdown]
# ## Where did the hypothesis come from?
#
# This one was found by a command: `retrieval-interp discover transformer_a`, or in a notebook
# `circuits.discover(model, task, progress=...)`, in two or three minutes on two cores. It keeps the loss of every
# candidate it tried, and why it was taken or not.
#
# ## Exercises
#
# 1. Redirect the top path: `circuit.retargeted(circuit.paths[-1], "pair2.second")`. Which partial losses suffer?
# 2. L2H0 finds its symbol at three of four slots. Let it find it at all of them, with
# `circuit.with_head(Head(2, 0), OneHot({"query": "pair1.second"}))`: does the loss rise or fall? Where does the model get the
# fourth symbol from (`retrieval-interp study elimination transformer_a`)?
# 3. Add a path that does nothing. Which step of `validate` notices?
# 4. Make every head but the useful ones `Identity` instead of `Uniform`. Does the circuit still hold?
