"""What training starts from, where a module is handed in: its numbers travel beside the task, and not inside of it.

Only what begins as a copy of a shard needs them, and gives them up then; everybody else pulls.  In the task, tensors of
one element stand for those of the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import cloudpickle
from torch import Tensor, nn
from torch.nn import Parameter

from psplatform.runtime.references import StandIn, reached
from psplatform.tasks.seam import Workspace
from psplatform.tasks.supervised import handed_in
from psplatform.tensors.flat import stand_in_of

_OF_PICKLES: Final = frozenset({"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__deepcopy__"})
"""Methods of a module that may look at the numbers while they are not there."""

_TRUSTED: Final = frozenset({"torch", "builtins"})


@dataclass(frozen=True, slots=True)
class Initial:
    """What a task starts from.

    Attributes
    ----------
    pickled
        The tensors of the module by name, pickled by cloudpickle; empty where the task makes them itself.
    stand_ins
        What stands for them in the task's pickle, by the ids of the tensors.
    tensors
        Those tensors: as long as they are kept, no other object has their ids.
    """

    pickled: bytes = b""
    stand_ins: Mapping[int, StandIn] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()


def initial_of(task: object, others: Iterable[object]) -> Initial:
    """Return what a task starts from, apart from its pickle where that is possible.

    It is not where a class of the module has a way of its own to be pickled or copied, and of no tensor that is reached
    from the `others`, the parts of the task beside its module.
    """
    tensors = handed_in(task)
    module = getattr(task, "model", None)
    if not tensors or not isinstance(module, nn.Module) or any(tensor.is_meta for tensor in tensors.values()):
        return Initial()
    if any(_has_a_way_of_its_own(type(one)) for one in module.modules()):
        return Initial()
    plain = {id(tensor): tensor for tensor in tensors.values() if type(tensor) in {Tensor, Parameter}}
    stand_ins = {key: stand_in_of(tensor) for key, tensor in plain.items()}
    try:
        for other in others:
            for found in reached(other, stand_ins):
                del plain[found], stand_ins[found]
        pickled = cloudpickle.dumps({name: tensor.detach().cpu() for name, tensor in tensors.items()})
    except Exception:  # noqa: BLE001  what cannot be pickled is named where the parts are
        return Initial()
    return Initial(pickled, stand_ins, tuple(plain.values())) if stand_ins else Initial()


def initial_tensors(workspace: Workspace, pickled: bytes) -> Mapping[str, Tensor]:
    """Return the tensors that training starts from, by name: those that came beside the task, or the task's own."""
    found: Mapping[str, Tensor] = cloudpickle.loads(pickled) if pickled else workspace.initial()
    return found


def _has_a_way_of_its_own(kind: type) -> bool:
    foreign = (one for one in kind.__mro__ if one.__module__.partition(".")[0] not in _TRUSTED)
    return any(_OF_PICKLES & vars(one).keys() for one in foreign)
