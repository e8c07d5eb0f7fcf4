"""`gateway verify`: whether a delivery is genuine, and what probably went wrong where it is not."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import opening, show
from cli.failure import FAILED, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.configuration import Configuration
    from providers.verification import KeyStore
    from schemas.contract import Contract
    from schemas.delivery import InboundRequest, Secret

MAX_BYTES: Final = 67_108_864  # a vector file with its keys and certificates is far smaller


def verify(
    contract: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A configured provider's name, with its contract and secrets; a shipped contract's; or a path."
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="REF", help="env:NAME, file:PATH or vault:NAME; repeat it for several. Else the provider's own."),
    ] = None,
    request: Annotated[
        str | None, typer.Option(metavar="FILE", help="The request: raw HTTP text, or a JSON case as in vector files. - is stdin.")
    ] = None,
    now: Annotated[int | None, typer.Option(metavar="UNIX", help="The time of arrival; else now.")] = None,
    url: Annotated[str | None, typer.Option(help="The endpoint's public address, for schemes that sign it.")] = None,
    config: opening.Config = None,
    vectors: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Run a vector file; repeat it, or give further files behind it.")
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="[FILE…]", help="Further vector files.")] = None,
    json: show.Json = False,
) -> None:
    """Judge one delivery (NAME [--secret REF] --request FILE), or run vector files (--vectors FILE…). Exit 1 when it is not genuine."""
    if vectors:
        from cli.commands.verify_vectors import run_files

        # `--vectors a b c`: what stands behind the first file is an argument to the parser.
        run_files([*vectors, *([contract] if contract else []), *(more or [])], json=json)
        return
    if contract is None or request is None or more:
        raise CommandError("give NAME [--secret REF] --request FILE, or --vectors FILE…; see gateway verify --help", code=WRONG_USAGE)
    _one(_whose(contract, secret or [], config), request, now, url, json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """By what a delivery is judged. `url`: the endpoint's public address, empty where none is configured."""

    contract: "Contract"
    secrets: "tuple[Secret, ...]"
    params: "Mapping[str, str]"
    url: str = ""


def _whose(name: str, references: list[str], config: str | None) -> Whose:
    """Return what belongs to a configured provider of this name, else the contract. Given references stand instead of its secrets."""
    from cli.configuration import ConfigurationError
    from cli.contracts import contract as contract_of
    from cli.contracts import is_path
    from cli.house import constants
    from cli.house import secrets as secrets_of

    stored = any(reference.startswith("vault:") for reference in references)
    try:
        found = None if is_path(name) and not stored else opening.configuration(config)
    except ConfigurationError:
        if config is not None or stored:
            raise
        found = None  # a file that happens to lie here and is broken does not keep anybody from judging by a contract
    given = _given(references, found)
    provider = found.settings.providers.get(name) if found is not None else None
    if found is None or provider is None:
        return Whose(contract=contract_of(name, Path.cwd()), secrets=given, params={})
    url = f"{found.settings.public_url}/webhooks/{name}"
    contract = contract_of(provider.contract, found.folder)
    secrets = given
    if not given:
        from cli.commands.providers import stored_of
        from cli.world import RealWorld

        secrets = secrets_of(provider, stored_of(found), RealWorld().now())[0]
    return Whose(contract=contract, secrets=secrets, params=constants(provider)[0], url=url)


def _given(references: list[str], found: "Configuration | None") -> "tuple[Secret, ...]":
    """Return the secrets that the command line names; `vault:NAME` is opened in the record, whatever provider it was stored for."""
    from cli.commands.providers import stored_of
    from cli.material import VAULT
    from ledger.errors import SecretMissingError
    from ledger.vault import resolve
    from schemas.delivery import Secret

    stored = stored_of(found, asked=True) if found is not None and any(text.startswith(VAULT) for text in references) else None
    given: list[Secret] = []
    for reference in references:
        if stored is None or not reference.startswith(VAULT):
            given.append(Secret(id=reference, value=resolve(reference)))
            continue
        kept = next((secret for secret in stored.secrets if secret.name == reference.removeprefix(VAULT)), None)
        if kept is None or kept.purpose != "webhook":
            raise SecretMissingError(f"{reference} is no stored webhook secret; see gateway secrets list")
        # Also one that is not usable now: whether it made an old delivery is what may be asked.
        given.append(Secret(id=reference, value=kept.value))
    return tuple(given)


def _one(whose: Whose, file: str, now: int | None, url: str | None, *, json: bool) -> None:
    from cli.world import RealWorld
    from providers import handshakes, mapping
    from providers.diagnosis import Account, diagnose
    from providers.verification import verify as judge
    from schemas.delivery import Verified
    from schemas.operation import SECOND

    contract, secrets = whose.contract, whose.secrets
    data = _read(file)
    keys, own = brought_along(data, contract)
    request, params = parse(data, url, whose.url), {**whose.params, **own}
    at = RealWorld().now() if now is None else now * SECOND
    verdict = handshakes.distrusted(contract, judge(request, contract.signatures, secrets, at, params, keys=keys))
    genuine = isinstance(verdict, Verified)
    shown: dict[str, Any] = {"verdict": "genuine" if genuine else "refused", "scheme": verdict.scheme_id, "secret": verdict.secret_id}
    if isinstance(verdict, Verified):
        events = mapping.events(contract, request, verdict.signed)
        shown["events"] = [{"dedup_key": event.dedup_key, **mapping.describe(event)} for event in events]
    else:
        causes = diagnose(request, Account(schemes=contract.signatures, secrets=secrets, params=params, keys=keys), at)
        shown |= {
            "reason": str(verdict.reason),
            "detail": verdict.detail,
            "likely_cause": causes[0].text,
            "causes": [{"code": cause.code, "certain": cause.certain, "text": cause.text} for cause in causes],
        }
    if json:
        show.emit(shown)
    else:
        events_shown = shown.pop("events", [])
        shown["causes"] = [cause["text"] for cause in shown.get("causes", [])[1:]]
        show.facts(shown)
        for number, event in enumerate(events_shown, start=1):
            show.facts({f"event {number} {key}": value for key, value in event.items()})
    if not genuine:
        raise typer.Exit(FAILED)


# --- the request's file


def parse(data: bytes, url: str | None = None, configured: str = "") -> "InboundRequest":
    """Return the request in `data`: raw HTTP text, or the JSON object of a vector case. Raises CommandError.

    `url` stands instead of the address that the request has; `configured` is the endpoint's, for a text, which has none of its own.
    """
    if data.lstrip()[:1] == b"{":
        return _from_case(data, url)
    return _from_http(data, url or configured)


def brought_along(data: bytes, contract: "Contract") -> "tuple[KeyStore, dict[str, str]]":
    """Return the published keys and the account's constants that a JSON case brings along. Raises CommandError."""
    from providers.vectors import keys_of
    from providers.verification import NO_KEYS
    from schemas.jsontext import UnreadableJsonError
    from schemas.jsontext import parse as parse_json

    if data.lstrip()[:1] != b"{":
        return NO_KEYS, {}
    try:
        case = parse_json(data)
        return keys_of(case, contract.signatures), {str(name): str(value) for name, value in (case.get("params") or {}).items()}
    except (UnreadableJsonError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"the keys of the request cannot be read ({type(error).__name__})", code=WRONG_USAGE) from None


def _from_case(data: bytes, url: str | None) -> "InboundRequest":
    from providers.vectors import request_of
    from schemas.jsontext import UnreadableJsonError
    from schemas.jsontext import parse as parse_json

    try:
        case = parse_json(data)
        return request_of({**case, "url": url or case.get("url", "http://localhost/")})
    except (UnreadableJsonError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(
            f"the request is not a case of a vector file ({type(error).__name__}); it has url, headers, body_base64", code=WRONG_USAGE
        ) from None


def _from_http(data: bytes, url: str | None) -> "InboundRequest":
    from schemas.delivery import InboundRequest

    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator or b"\n\n" in head:  # saved with bare line ends
        head, separator, body = data.partition(b"\n\n")
    first, *lines = head.replace(b"\r\n", b"\n").split(b"\n")
    start = re.fullmatch(rb"([A-Z]+) (\S+)(?: HTTP/[0-9.]+)?", first)
    if start is None or not separator or any(b":" not in line for line in lines):
        wanted = "a request line (POST /path HTTP/1.1), header lines, an empty line, the body"
        raise CommandError(f"the request is neither JSON nor HTTP text: {wanted}", code=WRONG_USAGE)
    headers = tuple((name.strip().lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines))
    target = start[2]
    host = next((value for name, value in headers if name == b"host"), b"localhost")
    address = target if b"://" in target else b"https://" + host + target
    whole = url.encode() if url else address
    path, _, query = target.partition(b"?")
    return InboundRequest(
        method=start[1].decode(), path=path, query=query, headers=headers, body=body, public_url=whole.partition(b"?")[0].decode("latin-1")
    )


def _read(file: str) -> bytes:
    import sys

    if file == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CommandError(f"{file}: larger than {MAX_BYTES} bytes", code=WRONG_USAGE)
    return data
