"""Optimizers, their parameter groups, and a table of the learning rates of all steps.

`Trainer.__init__` uses them. `sample_rows.py` uses the same table for the per-image classifier.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from twofold.config import Config
from twofold.lars import LARS
from twofold.models.blocks import block_numbers


def parameter_groups(
    config: Config,
    parameters: Iterable[tuple[str, nn.Parameter]],
    steady: nn.Module | None = None,
    encoder: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """The parameter groups of the optimizer.

    Biases and norms, which are the vectors and scalars, have their own group, without weight decay (unless `decay_all`)
    and without LARS's adaptation. So do the parameters of a `steady` network, whose learning rate stays constant. The
    parameters of the encoder have their own groups if their learning rates differ from that of the heads: one for each
    factor of the learning rate, `lr_scale`.
    """
    kept = set() if steady is None else {id(parameter) for parameter in steady.parameters()}
    scales = {} if encoder is None else encoder_lr_scales(config, encoder)
    groups: dict[tuple[bool, bool, bool, float], dict[str, Any]] = {}
    for _, parameter in parameters:
        vector, is_steady = parameter.ndim < 2, id(parameter) in kept
        decays = config.decay_all or not vector
        group = {
            "params": [],
            "weight_decay": config.weight_decay if decays else 0.0,
            "steady": is_steady,
            "is_encoder": id(parameter) in scales,
            "lr_scale": scales.get(id(parameter), 1.0),
        }
        if vector and config.optimizer == "lars":
            group["adapt"] = False
        key = is_steady, vector, id(parameter) in scales, scales.get(id(parameter), 1.0)
        groups.setdefault(key, group)["params"].append(parameter)
    return [groups[which] for which in sorted(groups)]


def encoder_lr_scales(config: Config, encoder: nn.Module) -> dict[int, float]:
    """The factor of the learning rate for each parameter of the encoder, by the id of the parameter.

    The result is empty if the encoder is trained as the heads are.
    """
    if config.encoder_lr is None and config.layer_decay == 1 and config.head_epochs == 0:
        return {}
    ratio = 1.0 if config.encoder_lr is None else config.encoder_lr / config.lr
    numbers = block_numbers(encoder)
    return {
        id(parameter): ratio * config.layer_decay ** numbers[name] for name, parameter in encoder.named_parameters()
    }


def build_optimizer(
    config: Config,
    parameters: Iterable[tuple[str, nn.Parameter]],
    device: torch.device,
    steady: nn.Module | None = None,
    encoder: nn.Module | None = None,
) -> Optimizer:
    groups = parameter_groups(config, parameters, steady, encoder)
    lr = torch.tensor(config.scaled_lr, device=device)
    for group in groups:
        group["lr"] = lr.clone() * group["lr_scale"] if group["steady"] or group["is_encoder"] else lr
    fused = {"fused": True} if device.type in ("cuda", "cpu") else {"foreach": False}
    adaptive = fused | {"capturable": device.type == "cuda"}
    match config.optimizer:
        case "sgd":
            return torch.optim.SGD(groups, lr=lr, momentum=config.momentum, **fused)
        case "adam":
            return torch.optim.Adam(groups, lr=lr, betas=config.betas, **adaptive)
        case "adamw":
            return torch.optim.AdamW(groups, lr=lr, betas=config.betas, **adaptive)
        case "lars":
            return LARS(groups, lr=lr, momentum=config.momentum, eta=config.lars_eta)


def learning_rates(config: Config, steps_per_epoch: int, start: int = 0) -> Tensor:
    """The learning rate of each step, float64 [steps]. The last step of the linear warm-up has the full rate.

    With `start`, the schedule begins at that step; before, the learning rate is 0.
    """
    total = config.epochs * steps_per_epoch - start
    warmup = min(round(config.warmup_epochs * steps_per_epoch), total)
    step = torch.arange(total, dtype=torch.float64)
    if config.schedule == "cosine":
        end = total if config.schedule_epochs is None else round(config.schedule_epochs * steps_per_epoch) - start
        phase = ((step - warmup) / max(end - warmup, 1)).clamp_max(1)
    elif config.schedule == "restarts":
        cycle = max(round(config.restart_epochs * steps_per_epoch), 1)
        phase = ((step - warmup) % cycle) / cycle
    else:
        phase = torch.zeros_like(step)
    factor = torch.where(step < warmup, (step + 1) / max(warmup, 1), (1 + torch.cos(math.pi * phase)) / 2)
    return config.scaled_lr * torch.cat([torch.zeros(start, dtype=torch.float64), factor])


def head_steps(config: Config, steps_per_epoch: int) -> int:
    """The number of steps at the start in which the encoder is not trained."""
    return round(config.head_epochs * steps_per_epoch)


def set_learning_rate(optimizer: Optimizer, lr: Tensor, encoder_lr: Tensor | None = None) -> None:
    """Set the learning rate of the heads, and that of the encoder before its factors, by default the same."""
    for group in optimizer.param_groups:
        if group["is_encoder"]:
            group["lr"].copy_((lr if encoder_lr is None else encoder_lr) * group["lr_scale"])
        elif not group["steady"]:
            group["lr"].copy_(lr)


def optimizer_state(optimizer: Optimizer) -> dict[int, Any]:
    """The optimizer's state of each parameter, without its settings, which the configuration has."""
    return optimizer.state_dict()["state"]


def load_optimizer_state(optimizer: Optimizer, state: dict[int, Any]) -> None:
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    # Checkpoints hold contiguous tensors, but fused optimizers need state in the same memory format as its weight.
    for weight, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                values[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
