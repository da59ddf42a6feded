"""Finding policies by entry point and building them from options."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from psplatform.core.limits import nearest
from psplatform.core.parameters import accept_all, parameters_of
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError

if TYPE_CHECKING:
    from psplatform.jobs.job import Job

GROUP = "psplatform.policies"


def policy_names(*, own: bool = False) -> list[str]:
    """Return the registered names in alphabetical order, those of psplatform's `own` policies only if asked."""
    return sorted(name for name, entry in _registered().items() if not own or entry.value.startswith("psplatform."))


def policy_class(name: str) -> type[Policy]:
    """Return the class registered under `name`.

    Raises
    ------
    ConfigurationError
        If there is none (the nearest name is suggested), or its module cannot be imported.
    """
    registered = _registered()
    if name not in registered:
        raise ConfigurationError(f"unknown policy {name!r}; {nearest(name, sorted(registered))}", field="policy")
    try:
        found = registered[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"policy {name!r} is registered as {registered[name].value} but cannot be imported: {error}", field="policy"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigurationError(f"policy {name!r} ({registered[name].value}) is not a Policy class", field="policy")
    return found


def make_policy(name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """Return the policy registered under `name` with its parameters set from `options`, texts or values.

    Raises
    ------
    ConfigurationError
        For an unknown policy or parameter, a wrong type or a value out of range.
    """
    factory = policy_class(name)
    return factory(**accept_all(factory, options or {}, what=f"policy {name!r}"))


def policy_of(job: Job) -> Policy:
    """Return the policy that `job` names or holds.

    Raises
    ------
    ConfigurationError
        If the name or a parameter is wrong, or parameters are given beside a policy.
    """
    if not isinstance(job.policy, Policy):
        return make_policy(job.policy, job.policy_options)
    if job.policy_options:
        raise ConfigurationError("policy_options go with a policy's name, not with a Policy", field="policy_options")
    return job.policy


def name_of(policy: Policy) -> str:
    """Return the name `policy` is registered under, or its class name where it is not."""
    where = f"{type(policy).__module__}:{type(policy).__qualname__}"
    matching = [name for name, entry in _registered().items() if entry.value == where]
    return matching[0] if matching else type(policy).__name__


def parameter_values(policy: Policy) -> dict[str, Any]:
    """Return the values of the policy's parameters."""
    return {one.name: getattr(policy, one.name) for one in parameters_of(type(policy))}


def describe_policies() -> list[dict[str, Any]]:
    """Return name, title, source and parameters of every registered policy as plain values."""
    return [_describe(name) for name in policy_names()]


def _describe(name: str) -> dict[str, Any]:
    factory = policy_class(name)
    return {
        "name": name,
        "title": (factory.__doc__ or "").strip().splitlines()[0],
        "source": factory.source,
        "parameters": [one.describe() for one in parameters_of(factory)],
    }


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
