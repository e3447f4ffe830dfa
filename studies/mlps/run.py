"""Where MLPs are needed, and where a linear map would do as well: ``python studies/mlps/run.py [MODEL ...]``.

One MLP at a time is replaced at the positions of one role, or at all positions, and then all MLPs at once. There are
two replacements, both made on other examples than those of the losses: the MLP's mean output at each position; and the
mean plus a linear map of how far the MLP's input is from its own mean there (a ridge regression for each role, and one
for all positions, used where there is no role).
"""

import sys
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from circuits.given import examples_of, stream_seed
from circuits.losses.loss import Loss
from circuits.utils.progress import shown
from retrieval_interp import load

N, BATCH, RIDGE, LOW = 512, 64, 1e-3, 0.05  # LOW: the paper's threshold
MODELS = ("transformer_a", "transformer_b", "transformer_c")


@torch.no_grad()
def table(name):
    model, task, _ = load(name)
    fit, test = (examples_of(task, N, stream_seed(0, stream)) for stream in ("MLP fit", "MLP loss"))
    groups = {"all": torch.ones(fit.inputs.shape[:2], dtype=torch.bool)}
    for role in fit.roles.distinct:
        groups[role] = torch.zeros_like(groups["all"]).scatter(1, fit.roles[role], True)
    layers = [layer for layer, block in enumerate(model.blocks) if hasattr(block, "mlp")]
    means, maps = fitted(model, fit, groups, layers)
    own = losses(model, task, test, ())
    rows, ways = [], [*(((layer,), role) for layer in layers for role in groups), (tuple(layers), "all")]
    with shown(None, name) as progress:
        for done, (where, role) in enumerate(ways):
            used = groups if role == "all" else [role]
            for instead in ("mean", "linear"):
                hooks = []
                for layer in where:
                    replaced = Replaced(means[layer], {one: maps[layer, one] for one in used}, test, instead)
                    hooks += [(into(layer), replaced.see), (out(layer), replaced.put)]
                each = losses(model, task, test, hooks)
                loss, added = (Loss.of(one, task.loss_components) for one in (each, each - own))
                low = "undecided" if loss.near(LOW) else "yes" if loss.mean < LOW else "no"
                of = "all" if len(where) > 1 else where[0]
                rows.append((name, of, role, instead, loss.mean, loss.standard_error, added.mean, low))
            progress((done + 1) / len(ways))
    columns = ("model", "layer", "role", "instead", "loss", "loss_se", "added", "low")
    return pd.DataFrame(rows, columns=columns)


def into(layer):
    return f"blocks.{layer}.ln2.hook_normalized"


def out(layer):
    return f"blocks.{layer}.hook_mlp_out"


class Replaced:
    """The hooks that put something in the place of an MLP."""

    def __init__(self, means, maps, examples, instead):
        self.means, self.maps, self.examples, self.instead, self.start = means, maps, examples, instead, 0

    def see(self, value, hook):
        self.seen = value

    def put(self, value, hook):
        batch = self.examples.take(slice(self.start, self.start + len(value)))
        self.start = (self.start + len(value)) % len(self.examples)
        mean_in, mean_out = self.means
        apart, new = self.seen - mean_in, mean_out.expand_as(value).clone()
        there = torch.zeros(value.shape[:2], dtype=torch.bool)
        for role, weights in self.maps.items():  # the map of a later role takes precedence
            at = there | True if role == "all" else torch.zeros_like(there).scatter(1, batch.roles[role], True)
            there |= at
            if self.instead == "linear":
                new = torch.where(at[..., None], mean_out + apart @ weights, new)
        return torch.where(there[..., None], new, value)


def fitted(model, examples, groups, layers):
    """Return the mean input and output of every MLP at each position, and its linear map for every group."""
    means, maps = {}, {}
    for layer in layers:  # the weights of the models are small: all activations of one layer fit into memory
        _, cache = model.run_with_cache(examples.inputs, names_filter=[into(layer), out(layer)])
        both = cache[into(layer)].double(), cache[out(layer)].double()
        means[layer] = tuple(one.mean(dim=0).float() for one in both)
        x, y = (one - one.mean(dim=0) for one in both)
        for role, there in groups.items():
            gram, cross = x[there].T @ x[there], x[there].T @ y[there]
            penalty = RIDGE * gram.diagonal().mean() + 1e-9
            maps[layer, role] = torch.linalg.solve(gram + penalty * torch.eye(len(gram)), cross).float()
    return means, maps


def losses(model, task, examples, hooks):
    parts = [examples.take(slice(start, start + BATCH)) for start in range(0, len(examples), BATCH)]
    return torch.cat([task.losses(model.run_with_hooks(one.inputs, fwd_hooks=[*hooks]), one) for one in parts])


if __name__ == "__main__":
    folder, run = Path(__file__).parent, partial(pd.DataFrame.to_csv, index=False, float_format="%.5f")
    run(pd.concat([table(name) for name in sys.argv[1:] or MODELS]), folder / "table.csv")
