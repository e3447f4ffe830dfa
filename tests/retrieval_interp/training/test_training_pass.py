import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from retrieval_interp.models.build import build
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder
from retrieval_interp.training.training_pass import training_pass

TASKS = [
    RetrievalTask(2, 3),
    RetrievalTask(2, 3, step_order=StepOrder.FIRST_FIRST),
    ConditionalTask(),
    EquationsTask(2),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize(("n_heads", "mlp"), [(1, True), (3, True), (3, False)])
@pytest.mark.parametrize("normalization_type", ["LN", "LNPre", None])
def test_training_takes_a_pass_with_the_answers_and_gradients_of_the_transformer(
    task, n_heads, mlp, normalization_type
):
    cfg = Architecture(n_layers=2, n_heads=n_heads, d_model=12, d_head=4, mlp=mlp).config(task)
    cfg.normalization_type, cfg.dtype = normalization_type, torch.float64
    model = build(task, cfg, seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():  # none is zero, biases among them
            weights.add_(torch.randn(weights.shape, generator=generator))
    inputs = task.examples(3, 0).inputs
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    for positions in (slice(None), task.trained_positions, slice(-3, None)):
        both = []
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention keeps its normaliser in single precision: 1e-7
            for answers in (model(inputs)[:, positions], training_pass(model, inputs, positions)):
                towards = torch.randn(answers.shape, generator=torch.Generator().manual_seed(2)).double()
                both.append((answers, *torch.autograd.grad((answers * towards).sum(), trained)))
        for own, fast in zip(*both, strict=True):
            torch.testing.assert_close(fast, own)
