"""PyTorch: ``replicate(worker, model)``, and ``tick()`` after each ``optimizer.step()``. Any optimizer, any device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssp_redis.errors import UsageError
from ssp_redis.frameworks import MissingFramework
from ssp_redis.given import Array
from ssp_redis.replica import Replica
from ssp_redis.worker import Worker

try:
    import torch
except ImportError as error:
    raise MissingFramework("torch", "torch") from error


def replicate(
    worker: Worker, model: torch.nn.Module, *, name: str = "model", scale: float | str = "workers", every: int = 1
) -> Replica:
    """Keep a model together with those of the others: parameters, and floating-point buffers, which are averaged.

    Arrays have the names of ``state_dict()``; tied weights count once. Frozen parameters are made the same for everyone
    once, so freeze before. An ``Embedding(sparse=True)`` on the CPU pulls the rows that it is asked for and pushes
    those that changed; seed all workers alike before it is made, and call ``refresh()`` before the model is saved.

    Args:
        worker: a member.
        model: any module; its tensors stay the objects that an optimizer knows.
        name: of the model, should a job have several.
        scale: what local changes are multiplied with, see :class:`Replica`.
        every: mini-batches for each clock.

    Raises:
        TableMismatch, UsageError: see :class:`Replica`.
    """
    view = _View(model)
    tables = _tables(model)
    replica = Replica(
        worker,
        view.read,
        view.write,
        copies=True,
        name=name,
        scale=scale,
        every=every,
        averaged=view.buffers,
        fixed=view.frozen,
        sparse=tables,
    )
    for key, module in tables.items():
        _follow(replica, key, module)
    return replica


class _View:
    """A model's tensors as arrays."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        kept = model.state_dict()
        self.parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        self.frozen = [key for key, tensor in self.parameters.items() if not tensor.requires_grad]
        #: Statistics; counters stay everyone's own, and what is not saved can be made again.
        self.buffers = [key for key, value in model.named_buffers() if key in kept and value.is_floating_point()]

    def tensors(self) -> dict[str, torch.Tensor]:
        """As the model has them now."""
        named, buffers = dict(self.model.named_parameters()), dict(self.model.named_buffers())
        return named | {key: buffers[key] for key in self.buffers if key in buffers}

    def read(self) -> dict[str, Array]:
        tensors = self.tensors()
        for key, tensor in self.parameters.items():
            if key not in tensors or tensors[key] is not tensor:
                raise UsageError(
                    f"{key} is not the tensor that it was when the model was replicated, and an optimizer may be "
                    "training the old one: replicate it again, with another name, and make a new optimizer"
                )
            if tensor.requires_grad == (key in self.frozen):
                raise UsageError(
                    f"{key} was {'un' if tensor.requires_grad else ''}frozen after the model was replicated: replicate "
                    "it again, with another name"
                )
        return {key: _array(tensor) for key, tensor in tensors.items()}

    def write(self, values: dict[str, Array]) -> None:
        tensors = self.tensors()
        for key, value in values.items():
            tensor = tensors[key].detach()
            if tensor.is_cpu:
                np.copyto(_array(tensor), value, casting="same_kind")
            else:
                tensor.copy_(torch.from_numpy(value.copy()))


def _tables(model: torch.nn.Module) -> dict[str, Any]:
    """Embeddings of sparse gradients, which no other module uses, by the name of their weight."""
    uses = [id(tensor) for _, tensor in model.named_parameters(remove_duplicate=False)]
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return {
        f"{path}.weight" if path else "weight": module
        for path, module in model.named_modules()
        if isinstance(module, kinds)
        and module.sparse
        and module.weight.requires_grad
        and module.weight.device.type == "cpu"
        and uses.count(id(module.weight)) == 1
    }


def _follow(replica: Replica, key: str, module: torch.nn.Module) -> None:
    def bring(_: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        replica.use(key, (given[0] if given else named["input"]).detach().cpu().numpy())

    module.register_forward_pre_hook(bring, with_kwargs=True)


def _array(tensor: torch.Tensor) -> Array:
    """A tensor as an array: its own memory on the CPU, a copy elsewhere."""
    tensor = tensor.detach() if tensor.is_cpu else tensor.detach().cpu()
    if tensor.dtype != torch.bfloat16:
        return np.asarray(tensor.numpy())
    try:
        import ml_dtypes
    except ImportError as error:
        raise MissingFramework("ml_dtypes", "torch") from error
    return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
