"""Loss functions as users write them, checked where a mistake would otherwise surface as a riddle."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from psplatform.errors import ConfigurationError

Outputs = Any  # of the user's model, for the user's loss
Loss = Callable[[Outputs, Any], Tensor]


def checked(loss: Loss, device: torch.device) -> Loss:
    """Return `loss` on `device`, refusing what is not a scalar tensor and, where gradients are on, one without any.

    Raises
    ------
    ConfigurationError
        With field ``loss``; at once if the loss has parameters of its own, which nobody would train.
    """
    if isinstance(loss, nn.Module):
        if any(parameter.requires_grad for parameter in loss.parameters()):
            raise _unusable("has trainable parameters, which would stay untrained; make them part of the model")
        loss = copy.deepcopy(loss).to(device)

    def scalar_loss(outputs: Outputs, targets: Tensor) -> Tensor:
        value = loss(outputs, targets)
        if not isinstance(value, Tensor):
            raise _unusable(f"returned a {type(value).__name__}; return a scalar tensor")
        if value.dim() != 0:
            raise _unusable(f"has shape {tuple(value.shape)}, not (); return its mean over the samples")
        if torch.is_grad_enabled() and not value.requires_grad:
            raise _unusable("does not depend on the model's parameters; compute it without detach() or item()")
        return value

    return scalar_loss


def _unusable(reason: str) -> ConfigurationError:
    return ConfigurationError(f"The loss {reason}.", field="loss")
