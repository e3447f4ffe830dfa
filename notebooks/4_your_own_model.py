# %% [markdown]
# # Your own model
#
# The engine, `circuits`, knows nothing of the retrieval problem. It takes any `HookedTransformer`, and a **problem**: examples
# whose positions have names, and a loss. Here we bring a model of our own, a small one that predicts repeated tokens, as
# induction heads were first found; state a hypothesis about its heads; and get a verdict.
#
# Runs top to bottom in about a minute on two cores.

# %% [markdown]
# ## The problem
#
#     position    0      1  2  3  4  ...        5  6
#     token       start  a  b  c  d  (filler)   a  b
#     role               first next                again     (asked at the second b: what came after the first? c)
#
# A problem has five things: the names of its roles and of its partial losses, the roles at which the loss reads the
# model, and two functions.

# %%
import torch
from torch.nn import functional
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits import Examples, Roles

VOCABULARY, PERIOD, FILLER = 24, 6, 6
LENGTH = 1 + 2 * PERIOD + FILLER


class RepeatedTokens:
    roles = ("again", "first", "next")
    loss_components = ("next",)
    output_roles = ("again",)

    def examples(self, n: int, seed: int) -> Examples:
        """Six tokens, filler of random length around them, and the six again."""
        generator = torch.Generator().manual_seed(seed)
        shuffled = torch.rand(n, VOCABULARY, generator=generator).argsort(dim=1)
        once, filler = shuffled[:, :PERIOD], shuffled[:, PERIOD : PERIOD + FILLER]
        before = torch.randint(FILLER + 1, (n, 1), generator=generator)
        first = 1 + before + torch.arange(PERIOD)
        again = torch.arange(LENGTH - PERIOD, LENGTH).expand(n, -1)
        place = torch.arange(FILLER).expand(n, -1)
        inputs = torch.full((n, LENGTH), VOCABULARY)
        inputs.scatter_(1, 1 + place + PERIOD * (place >= before), filler)
        inputs.scatter_(1, first, once)
        inputs.scatter_(1, again, once)
        # [batch, role, chain]: five "chains" in every example, one for each repeated token but the last.
        positions = torch.stack([again[:, :-1], first[:, :-1], first[:, 1:]], dim=1)
        return Examples(inputs, once[:, 1:], Roles(self.roles, positions))

    def losses(self, outputs: torch.Tensor, examples: Examples) -> torch.Tensor:
        """Cross-entropy where the answer is asked for, as a share of that of a guess; [batch, part]."""
        rows = torch.arange(len(examples))[:, None]
        logits = outputs[rows, examples.roles["again"]].transpose(1, 2)
        loss = functional.cross_entropy(logits, examples.targets, reduction="none")
        return loss.mean(dim=1, keepdim=True) / torch.tensor(float(VOCABULARY)).log()


problem = RepeatedTokens()
problem.examples(1, seed=0).inputs

# %% [markdown]
# ## The model
#
# Two layers of two heads, attention only. Yours may come from anywhere: `HookedTransformer.from_pretrained`, a checkpoint.

# %%
from tqdm.auto import trange

config = HookedTransformerConfig(
    n_layers=2, n_heads=2, d_model=64, d_head=32, n_ctx=LENGTH, d_vocab=VOCABULARY + 1, d_vocab_out=VOCABULARY,
    attn_only=True, normalization_type="LN", seed=0, device="cpu",
)  # fmt: skip
model = HookedTransformer(config)
STEPS = 400
optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
for step in trange(STEPS):
    batch = problem.examples(64, seed=1_000_000 + step)
    loss = problem.losses(model(batch.inputs), batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
model.eval()
print(f"loss {loss.item():.4f}, where a guess has 1")

# %% [markdown]
# ## Look
#
# From role to role, on average. Which head leads from `next` to `first`, the token before? Which from `again` to `next`?

# %%
from circuits import role_attention
from circuits.figures.attention_figure import attention_figure

examples = problem.examples(256, seed=1)
attention = role_attention(model, examples)
order = ["first", "next", "again"]
attention_figure(attention, problem.roles, order)

# %%
from circuits import attention_viewer

attention_viewer(model, examples, example=0)

# %% [markdown]
# ## A hypothesis, and a verdict
#
# The textbook says: a head in the lower layer attends to the token before, a head in the upper one from the second
# occurrence to what came after the first. We take the two that look most like it, and say of the others that they do not
# matter.

# %%
from circuits import Circuit, Head, OneHot, Previous, Uniform

again, first, following = (problem.roles.index(role) for role in ("again", "first", "next"))
lower = int(attention[0, :, following, first].argmax())
upper = int(attention[1, :, again, following].argmax())
textbook = Circuit(
    {
        Head(0, lower): Previous(),
        Head(0, 1 - lower): Uniform(),
        Head(1, upper): OneHot({"again": "next"}),
        Head(1, 1 - upper): Uniform(),
    },
    name="textbook",
)
print(*textbook.paths, sep="\n")

# %%
from circuits import validate

report = validate(model, problem, textbook, n_examples=512, seed=2)
for verdict in report.verdicts:
    print(verdict.outcome, verdict.step, "-", verdict.sentence)

# %%
report.paths_table().round(3)

# %% [markdown]
# In our run the textbook is rejected: with these four mechanisms in the place of its attention the model cannot do its task.
# Something is missing, and the maps above show what: both heads of the upper layer look from `again` to `next`.
#
# ## Or have it found
#
# `discover` searches for the simplest circuit that keeps the loss low, on one sample; judge it on another.

# %%
from circuits import discover

found = discover(model, problem)
print(*found.circuit.paths, sep="\n")
for head, mechanism in found.circuit.heads.items():
    print(head, mechanism)
validate(model, problem, found.circuit, n_examples=512, seed=2).passed

# %% [markdown]
# ## Explore it
#
# Mend the textbook by hand: choose the other upper head, draw its path from `again` to `next`, and watch the loss. The lower
# head, too, follows a role and not every position: draw `next` to `first` for it.

# %%
from circuits.explorer import explore

explore(model, problem, textbook)

# %% [markdown]
# ## Exercises
#
# 1. Is it chance? `circuits.against_chance` holds the circuit against random ones of the same size.
# 2. Set `FILLER = 0` and train again. The copy then stands at a fixed distance: does the model still need both heads?
# 3. Compile a circuit into weights with `circuits.ground_truth.compile`, and let `discover` find what you planted.
