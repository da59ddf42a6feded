"""Parameters declared once: a dataclass field with type, range and help drives validation, command line and forms.

::

    @dataclass
    class StaleSynchronous(Policy):
        bound: int = parameter(3, minimum=0, help="iterations a worker may be ahead of the slowest")

Policies, optimisers, schedules, replication, stragglers and the rest are declared this way; `parameters_of` lists what
any of them declares, and a `Job`'s fields.  Values are validated by pydantic (`psplatform.core.validation`), which is
loaded when the first value is checked: declaring and listing parameters loads nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Final, TypeVar

from psplatform.core.limits import nearest
from psplatform.errors import ConfigurationError

_KEY: Final = "psplatform.parameter"

_LONGEST: Final = 200
"""Characters of a refused value that a sentence shows: one may be a whole trace."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known about one parameter.

    Attributes
    ----------
    kind
        ``int``, ``float``, ``str`` or ``bool``; ``tuple`` of numbers; or the class of a specification.
    optional
        Whether ``None`` is allowed; `help` says what it stands for: ``...; none: no limit``.
    default
        `dataclasses.MISSING` where a value must be given.
    minimum, maximum, above, below
        Range of a number, or of each number of a tuple: inclusive and exclusive bounds, ``None`` where open.
    finite
        Whether infinity is refused; NaN always is.
    choices
        The allowed words of a ``str``, empty where any is allowed.
    alias
        What it is called in sentences and on the command line, if not by its name.
    remedy
        What errors advise beside the range.
    read
        Turns a text into a value, where a text says more than a number.
    path
        Whether it names a file or folder: a page in a browser may not set it.
    source
        The work that what has the parameter is taken from: authors, title and year.
    hint
        The annotation, without ``None``.
    """

    name: str
    kind: type
    optional: bool
    default: Any = dataclasses.field(hash=False)
    help: str
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    finite: bool = False
    choices: tuple[str, ...] = ()
    alias: str = ""
    remedy: str = ""
    read: Callable[[str], Any] | None = None
    path: bool = False
    source: str = ""
    hint: Any = None

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING

    @property
    def spelled(self) -> str:
        """The name in sentences and on the command line."""
        return self.alias or self.name

    @property
    def wanted(self) -> str:
        """The values it takes, in words: ``an int from 1 to 9``."""
        if self.choices:
            return " or ".join(map(repr, self.choices))
        if self.kind is not tuple:
            noun = _noun(self.kind, self.finite)
            article = "an" if noun[0].lower() in "aeiou" else "a"
            meaning = "" if self.kind in (int, float, str, bool) else f" ({self.help})"
            return f"{article} {noun}{self._range_in_words()}{meaning}"
        items = typing.get_args(self.hint)
        count = "" if items[-1] is Ellipsis else f"{len(items)} "
        return f"{count}{_plural(items[0], self.finite)}{self._range_in_words()}"

    def describe(self) -> dict[str, Any]:
        """Return a plain dictionary for ``--json`` and for forms."""
        kind = str(self.hint) if self.kind is tuple else self.kind.__name__
        low = self.above if self.minimum is None else self.minimum
        high = self.below if self.maximum is None else self.maximum
        return {
            "name": self.name,
            "type": f"{kind} | None" if self.optional else kind,
            "default": _plain(self.default),
            "range": list(self.choices) if self.choices else [low, high],
            "help": self.help,
        }

    def accept(self, value: Any) -> Any:
        """Return `value` in this parameter's type, read from text where it is a text.

        Raises
        ------
        ConfigurationError
            If the type is wrong or the value out of range.
        """
        if isinstance(value, str):
            if self.optional and value.lower() == "none":
                return None
            if self.read is None:
                return _validation().read(self, value)
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return `value` in this parameter's type, or raise as above; no text is taken for a number."""
        if isinstance(value, str) and self.read is not None:
            value = self.read(value)
        return _validation().validated(self, value)

    def refusal(self, value: Any, *, maximum: float | None = None) -> ConfigurationError:
        """Return the sentence that refuses `value`, in which `maximum` takes the place of one that is not declared."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        wanted = self.wanted if maximum is None else dataclasses.replace(self, maximum=maximum).wanted
        return ConfigurationError(f"{self.spelled} must be {wanted}, not {_short(value)}{remedy}", field=self.name)

    def _range_in_words(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" from {_shown(self.minimum)} to {_shown(self.maximum)}"
        bounds = {"of at least": self.minimum, "above": self.above, "of at most": self.maximum, "below": self.below}
        words = [f"{word} {_shown(bound)}" for word, bound in bounds.items() if bound is not None]
        return " " + " and ".join(words).replace("and of", "and") if words else ""


def parameter(  # noqa: PLR0913  each is a keyword that few declarations need
    default: Any = MISSING,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    finite: bool = False,
    choices: tuple[str, ...] = (),
    alias: str = "",
    remedy: str = "",
    read: Callable[[str], Any] | None = None,
    path: bool = False,
) -> Any:
    """Declare a dataclass field as a parameter; its type is the field's annotation, and `Parameter` says the rest."""
    rest = {key: value for key, value in locals().items() if key != "default"}
    return dataclasses.field(default=default, metadata={_KEY: rest})


def parameters_of(owner: type) -> tuple[Parameter, ...]:
    """Return the parameters that dataclass (or pydantic model) `owner` declares, in order of declaration."""
    return _parameters_of(owner)


@functools.cache
def _parameters_of(owner: Any) -> tuple[Parameter, ...]:
    if hasattr(owner, "model_fields"):
        fields = _validation().fields_of_model(owner)
        return tuple(described(name, hint, default, "", rest) for name, hint, default, rest in fields)
    hints = typing.get_type_hints(owner, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(owner)}
    source = getattr(owner, "source", "") if "source" not in fields else ""
    return tuple(
        described(name, hints[name], field.default, source, field.metadata[_KEY])
        for name, field in fields.items()
        if _KEY in field.metadata
    )


def declared(owner: type) -> dict[str, Parameter]:
    """Return the parameters that `owner` declares by name."""
    return {one.name: one for one in parameters_of(owner)}


def described(name: str, hint: Any, default: Any, source: str, rest: Mapping[str, Any]) -> Parameter:
    """Return the parameter with the annotation `hint`, of which `rest` is known beside."""
    inner = _without_metadata(hint)
    optional = inner is Any and default is None
    if isinstance(inner, types.UnionType) or typing.get_origin(inner) is typing.Union:
        kinds = [one for one in typing.get_args(inner) if one is not type(None)]
        optional = len(kinds) < len(typing.get_args(inner))
        hint = kinds[0] if inner is hint and len(kinds) == 1 else hint
        inner = _without_metadata(kinds[0]) if len(kinds) == 1 else object
    origin = typing.get_origin(inner)
    if origin is typing.Literal:
        rest = {**rest, "choices": typing.get_args(inner)}
        origin = str
    kind = object if inner is Any else origin or inner
    return Parameter(name=name, kind=kind, optional=optional, default=default, source=source, hint=hint, **rest)


def accept_all(owner: type, options: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """Return `options` typed and checked against the parameters of `owner`, or raise `ConfigurationError`."""
    require_names(owner, options, f"{what} has no parameter")
    known = declared(owner)
    return {name: known[name].accept(value) for name, value in options.items()}


def built(owner: Callable[..., T], options: Mapping[str, Any], what: str, *, field: str | None = None) -> T:
    """Return the `owner` that `options` describe; it checks their values itself, as with `settle`.

    `what` begins the sentence that refuses an unknown name, as in ``sgd has no hyper-parameter``; `field` is what
    errors about names blame, by default the option.
    """
    require_names(typing.cast("type", owner), options, what, field=field)
    return owner(**options)


def require_names(owner: type, options: Mapping[str, Any], what: str, *, field: str | None = None) -> None:
    """Raise `ConfigurationError` if `options` has a name that `owner` does not declare, or lacks one it needs."""
    for name in options:
        require_known(name, declared(owner), what, field=field)
    for one in parameters_of(owner):
        if one.required and one.name not in options:
            subject = f"{field}: " if field else ""
            message = f"{subject}{one.name} is missing: {one.help}; give it a value"
            raise ConfigurationError(message, field=field or one.name)


def require_known(name: object, known: Collection[str], what: str, *, field: str | None = None) -> None:
    """Raise `ConfigurationError`, which suggests the nearest, if `name` is not among the `known` ones."""
    if str(name) not in known:
        raise ConfigurationError(f'{what} "{name}"; {nearest(str(name), known)}', field=field or str(name))


def settle(owner: Any, prefix: str = "", *, field: str | None = None, texts: bool = False) -> None:
    """Give each parameter of the dataclass instance `owner`, frozen or not, its checked value in its own type.

    `prefix` stands before the name in errors; a path such as ``stop.`` before their field as well, unless `field` is
    what they blame.  Only with `texts` are numbers read from texts.
    """
    for one in parameters_of(type(owner)):
        given = getattr(owner, one.name)
        try:
            value = one.accept(given) if texts else one.check(given)
        except ConfigurationError as error:
            blamed = field or (f"{prefix}{error.field}" if prefix.endswith(".") else error.field)
            raise ConfigurationError(f"{prefix}{error}", field=blamed) from None
        object.__setattr__(owner, one.name, value)


def _validation() -> Any:
    from psplatform.core import validation  # noqa: PLC0415  brings pydantic

    return validation


def _without_metadata(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _noun(kind: type, finite: bool) -> str:
    return "finite number" if kind is float and finite else kind.__name__


def _plural(item: Any, finite: bool) -> str:
    inner = typing.get_args(item)
    return f"tuples of {_plural(inner[0], finite)}" if inner else f"{_noun(item, finite)}s"


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _plain(default: Any) -> Any:
    if default is MISSING:
        return None
    if hasattr(default, "to_plain"):
        return default.to_plain()
    return dataclasses.asdict(default) if dataclasses.is_dataclass(type(default)) else default
