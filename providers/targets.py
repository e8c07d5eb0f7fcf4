"""Where a call goes: the fields of templates, paths on the pinned origin, and addresses that a provider named itself (B148).

The base of every authenticated call is the origin that was pinned on the operation when it was registered. An address from an
answer is used only on that origin, or on one that the contract lists, and then without credential (B146).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urljoin

from providers.answers import MAX_REMEMBERED, job_id_text
from providers.origins import UNUSABLE, address, listed, origin_of
from providers.places import TemplateError, as_id, render, template_fields
from schemas.contract import Contract, CreateRule
from schemas.jsontext import UnreadableJsonError, parse
from schemas.operation import Operation

_MAX_MEMBER: Final = 4_000  # characters of a member of the caller's request that a template may use


class UnbuildableError(ValueError):
    """This request cannot be made. `code` is a stable word; `refusal` turns it into evidence. Never repeats a secret."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnusableJobIdError(UnbuildableError):
    """The remote job id cannot stand in a path: missing, `.`, `..`, too long or with control characters."""

    def __init__(self) -> None:
        super().__init__("unusable_job_id", "the remote job id cannot be used in a request")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A whole address. `own`: on the pinned origin; only there a credential may go."""

    url: str
    own: bool = True


def fields(operation: Operation, contract: Contract, callback_url: str = "") -> dict[str, str]:
    """Return the template fields of an operation. A job id that cannot be used is left out (UnusableJobIdError later)."""
    values = {
        "token": operation.idempotency_token,
        "operation": operation.id,
        "trace_id": operation.trace_id,
        "reference": operation.reference or "",
        "callback_url": callback_url,
    }
    values |= {f"param.{name}": value for name, value in contract.params.items()}
    values |= {f"create.{name}": value for name, value in operation.remembered.items()}
    if contract.create is not None:
        values |= members(operation.request, contract.create)
    if job_id := job_id_text(operation.remote_job_id):
        values["remote_job_id"] = job_id
    return values


def members(request: bytes | None, rule: CreateRule) -> dict[str, str]:
    """Return `request.NAME` for the members that the contract uses; one that is no text or integer is left out."""
    names = (*rule.take, *rule.keep)
    if not names or not request:
        return {}
    try:
        value = parse(request)
    except UnreadableJsonError:
        return {}
    found = {name: as_id(value.get(name), _MAX_MEMBER) for name in names} if isinstance(value, dict) else {}
    return {f"request.{name}": text for name, text in found.items() if text}


def path_of(template: str, values: Mapping[str, str]) -> str:
    """Return a filled path: every field one encoded segment. Raises UnbuildableError."""
    try:
        if "remote_job_id" not in values and "remote_job_id" in template_fields(template):
            raise UnusableJobIdError
        path = render(template, values, in_path=True)
    except TemplateError as error:
        raise UnbuildableError("unusable_path", f"a request's path cannot be filled: {error}") from error
    if not path.startswith("/") or "#" in path or "\\" in path:
        raise UnbuildableError("unusable_path", "a request's path starts with / and has no fragment")
    return path


def with_query(path: str, name: str, value: str) -> str:
    """Return `path` with one more query parameter, both parts percent-encoded."""
    return f"{path}{'&' if '?' in path else '?'}{quote(name, safe='')}={quote(value, safe='')}"


def base_of(operation: Operation) -> str:
    """Return the pinned origin in canonical form, perhaps with a path. Raises UnbuildableError."""
    base = address(operation.origin)
    if base is None or "?" in base.url:
        raise UnbuildableError("unusable_origin", "the operation's origin is no http or https address")
    return base.url.rstrip("/")


def target(operation: Operation, contract: Contract, url: str, path: str) -> Target:
    """Return the remembered address named `url`, where the operation has one, else the filled `path`. Raises UnbuildableError."""
    base = base_of(operation)
    named = operation.remembered.get(url, "") if url else ""
    if named:
        return _named(named, base, contract)
    if not path:
        raise UnbuildableError("no_address", "the create answer named no address, and the contract has no path")
    return Target(url=base + path_of(path, fields(operation, contract)))


def home(url: str, origin: str) -> bool:
    """Say whether `url` is a whole address on `origin`, by scheme, host and port, and without userinfo."""
    return origin_of(url) == origin_of(origin) != ""


def _named(url: str, base: str, contract: Contract) -> Target:
    """Return an address that the provider named. It may be relative: then it is one at home (RFC 9110 section 10.2.2)."""
    found = None
    if url.strip() and len(url) <= MAX_REMEMBERED and not UNUSABLE.search(url.strip()):
        try:
            found = address(urljoin(base + "/", url.strip()))
        except ValueError:
            found = None
    if found is None:
        raise UnbuildableError("unusable_url", "the address that the provider named is none")
    if found.origin == origin_of(base):
        return Target(url=found.url)
    allowed = contract.create.origins if contract.create is not None else ()
    if found.https and listed(found.origin, allowed) is not None:
        return Target(url=found.url, own=False)
    raise UnbuildableError("foreign_url", "the provider named an address on an origin that the contract does not list: it is not asked")
