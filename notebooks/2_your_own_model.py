# %% [markdown]
# # Your own model
#
# The engine, `circuits`, does not know the retrieval problem. It takes any `HookedTransformer` and a **task**: examples
# whose positions have names, and a loss. This notebook brings both. It trains a small model to predict repeated tokens, the
# task on which induction heads were first found. Then it states a hypothesis about the model's heads and tests it.
#
# The notebook runs in under a minute.

# %% [markdown]
# ## The task
#
#     token    start   a   b       c      d   ...   filler   ...   a   b       c   d   ...
#     role                 earlier next                                again
#
# At the second b the model has to predict c. Every repeated token but the last has these three roles.
#
# A task has five parts: the names of its roles, the names of its loss components, the roles at which the loss reads the
# model's outputs, and two functions, `examples` and `losses`.

# %%
import torch
from torch.nn import functional
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits import Examples, Roles

VOCABULARY, PERIOD, FILLER = 24, 6, 6
LENGTH = 1 + 2 * PERIOD + FILLER


class RepeatedTokens:
    roles = ("again", "earlier", "next")
    loss_components = ("next",)
    output_roles = ("again",)

    def examples(self, n: int, seed: int) -> Examples:
        """Six tokens between filler of random length, and the same six again at the end."""
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
        # [batch, role, instance]: five instances of the roles in every example, one for each repeated token but the last.
        positions = torch.stack([again[:, :-1], first[:, :-1], first[:, 1:]], dim=1)
        return Examples(inputs, once[:, 1:], Roles(self.roles, positions))

    def losses(self, outputs: torch.Tensor, examples: Examples) -> torch.Tensor:
        """Cross-entropy at ``again``, divided by that of a uniform guess; [batch, component]."""
        rows = torch.arange(len(examples))[:, None]
        logits = outputs[rows, examples.roles["again"]].transpose(1, 2)
        loss = functional.cross_entropy(logits, examples.targets, reduction="none")
        return loss.mean(dim=1, keepdim=True) / torch.tensor(float(VOCABULARY)).log()


task = RepeatedTokens()
task.examples(1, seed=0).inputs

# %% [markdown]
# ## The model
#
# Two layers with two heads each, attention only. Your model may come from anywhere, such as
# `HookedTransformer.from_pretrained` or a checkpoint.

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
    batch = task.examples(64, seed=1_000_000 + step)
    loss = task.losses(model(batch.inputs), batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
model.eval()
print(f"loss {loss.item():.4f}; a uniform guess has 1")

# %% [markdown]
# ## Look at the attention
#
# These are averages from role to role. Which head attends from `next` to `earlier`, the token before it? Which one attends from
# `again` to `next`?

# %%
from circuits import role_attention
from retrieval_interp.experiments.attention_figure import attention_figure

examples = task.examples(256, seed=1)
attention = role_attention(model, examples)
attention_figure(attention, task.roles, ["earlier", "next", "again"])

# %%
from circuits import attention_viewer

attention_viewer(model, examples, example=0)

# %% [markdown]
# ## State a hypothesis and test it
#
# The textbook explanation has two heads. A head in the lower layer attends to the token before. A head in the upper layer
# attends from the second occurrence of a token to what came after the first. We give these mechanisms to the two heads that
# look most like it, and say that the other two are idle: they write nothing that matters.

# %%
from circuits import Circuit

again, first, following = (task.roles.index(role) for role in ("again", "earlier", "next"))
lower = int(attention[0, :, following, first].argmax())
upper = int(attention[1, :, again, following].argmax())
textbook = Circuit(
    {
        f"L0H{lower}": "previous",
        f"L0H{1 - lower}": "idle",
        f"L1H{upper}": {"again": "next"},
        f"L1H{1 - upper}": "idle",
    },
    name="textbook",
)
print(*textbook.paths, sep="\n")

# %%
from circuits import validate

report = validate(model, task, textbook, n_examples=512, seed=2)
for verdict in report.verdicts:
    print(verdict.decision, verdict.name, "-", verdict.sentence)

# %%
report.paths_table().round(3)

# %% [markdown]
# The textbook circuit is rejected here: with these four patterns in place, the loss is high. The maps above show two things
# that it lacks: both heads of the upper layer attend from `again` to `next`, and the lower head does not only attend to the
# previous position. Mending the first alone is not enough.
#
# ## Let the toolkit find a circuit
#
# `discover` looks for the simplest circuit that keeps the loss low, on one sample of examples. `validate` tests it on another.

# %%
from circuits import discover

found = discover(model, task)
for head, mechanism in found.circuit.heads.items():
    print(head, mechanism)
validate(model, task, found.circuit, n_examples=512, seed=2).decision

# %% [markdown]
# ## Explore it
#
# Repair the textbook circuit by hand. Choose the other upper head, draw its path from `again` to `next`, and watch the loss.
# The lower head also attends to roles rather than to every previous position: draw `next` to `earlier` for it.

# %%
from circuits import explore

explore(model, task, textbook)

# %% [markdown]
# ## Exercises
#
# 1. How low is the loss of the same circuit with its paths exchanged? `circuit.retargeted` makes such circuits.
# 2. Set `FILLER = 0` and train again. The copy then stands at a fixed distance. Does the model still need both heads?
# 3. Compile a circuit into weights with `circuits.ground_truth.compile_circuit`, and let `discover` find it again.
