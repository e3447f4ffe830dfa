"""Noise in all weights of a model."""

import torch

from circuits.model.transformer import Transformer


@torch.no_grad()
def add_noise(model: Transformer, share: float, seed: int) -> None:
    """Add Gaussian noise to every weight of a model, in place.

    Args:
        model: any transformer.
        share: the noise's standard deviation, as a share of the root mean square of the parameter that it is added to.
            Parameters that are zero throughout stay zero.
        seed: the seed of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        rms = parameter.square().mean().sqrt()
        parameter.add_(share * rms * torch.randn(parameter.shape, generator=generator))
