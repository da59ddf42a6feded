"""A job as plain values, so that a run can be recovered from its store by a program that knows nothing else of it.

What has no plain form (a model, a loss or step, data, a task, a policy or schedule of one's own) is named in
``callables`` and must be given again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any, Final

from psplatform.core.parameters import parameters_of
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.jobs.metrics import Metric
from psplatform.jobs.optimizers import OPTIMIZERS
from psplatform.jobs.schedules import schedule_to_plain

CALLABLES: Final = "callables"
ASKED: Final = "replication_asked"


def plain_fields(fields: Mapping[str, Any], policy: str | None, *, replication_asked: bool) -> dict[str, Any]:
    """Return those of a job's `fields` that are plain, ``callables`` and ``replication_asked``; all of it is JSON.

    Parameters
    ----------
    policy
        Name under which the job's policy is registered, where the job holds a `Policy` and not a name.
    """
    plain: dict[str, Any] = {}
    given_again: list[str] = []
    for name, value in _with_named_policy(fields, policy).items():
        try:
            plain[name] = _FORMS.get(name, _plain)(value)
        except _NotPlainError:
            given_again.append(name)
    return {**plain, ASKED: replication_asked, CALLABLES: given_again}


def job_fields(plain: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the job that `plain` describes, completed and overridden by what is `given`.

    Parameters of the policy are overridden one by one; with another policy, those described hold no longer.

    Raises
    ------
    ConfigurationError
        If something that has no plain form is missing.
    """
    fields = dict(plain)
    fields.pop(ASKED, None)
    if given.get("step") is not None:
        given = {"loss": None, **given}  # one takes the place of the other
    elif given.get("loss") is not None:
        given = {"step": None, **given}
    missing = [name for name in fields.pop(CALLABLES, ()) if name not in given]
    if missing:
        named = ", ".join(missing)
        again = ", ".join(f"{name}=..." for name in missing)
        message = (
            f"the job's {named} cannot be read from its description; give {named} again: ps.recover(store, {again})"
        )
        raise ConfigurationError(message, field=missing[0])
    if given.get("policy", fields.get("policy")) != fields.get("policy"):
        fields.pop("policy_options", None)  # they are parameters of the policy that the description names
    options = given.get("policy_options")
    if isinstance(options, Mapping):
        given = {**given, "policy_options": {**fields.get("policy_options", {}), **options}}
    return {**fields, **given}


class _NotPlainError(Exception):
    """A value that JSON cannot hold."""


def _with_named_policy(fields: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    policy = fields["policy"]
    if not isinstance(policy, Policy) or name is None:
        return dict(fields)
    values = {one.name: getattr(policy, one.name) for one in parameters_of(type(policy))}
    return {**fields, "policy": name, "policy_options": values}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        # JSON has no infinity, but options may be texts.
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "__fspath__"):
        return str(value.__fspath__())
    raise _NotPlainError


def _supervised(value: Any) -> None:
    # Also where it happens to be plain, a list of numbers for example, it is not part of a description.
    if value is not None:
        raise _NotPlainError


def _optimizer(value: Any) -> Any:
    if OPTIMIZERS.get(value.name) is not type(value):
        raise _NotPlainError
    return value.to_plain()


def _metrics(value: Mapping[str, Metric]) -> Any:
    return {name: _required(metric.to_plain()) for name, metric in value.items()}


def _optional(value: Any) -> Any:
    return None if value is None else _required(value.to_plain())


def _required(plain: dict[str, Any] | None) -> dict[str, Any]:
    if plain is None:
        raise _NotPlainError
    return plain


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("model", "loss", "step", "data", "test", "collate", "predict", "task"), _supervised),
    "metrics": _metrics,
    "optimizer": _optimizer,
    "schedule": lambda schedule: _required(schedule_to_plain(schedule)),
    "stop": asdict,
    "stragglers": _optional,
    "slow_servers": _optional,
    "replication": _optional,
    "checkpoints": _optional,
    "compression": str,
    "network": _optional,
}
