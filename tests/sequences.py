"""What stands where in the sequences of a task."""


def symbols_of(task, examples, role):
    """The symbol at a role's position in every example and chain, [batch, chain, dim]."""
    return examples.inputs[..., : task.n_dims].gather(1, examples.roles[role][..., None].expand(-1, -1, task.n_dims))
