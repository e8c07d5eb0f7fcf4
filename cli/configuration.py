"""Reads gateway.toml and the environment into `schemas.settings.Settings`, or says everything that is wrong at once.

Strongest first: an option of the command, a `GATEWAY_*` variable, the file, `$DATABASE_URL` and `$PORT`, the default.
The last two are weaker than the file because a sidecar shares its environment with a service whose database is not ours.
Relative paths start at the folder of the file, or at the working folder where there is none.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from cli import setting
from cli.nearest import hint
from schemas.settings import ProviderSettings, Settings

FILE_NAME: Final = "gateway.toml"
_PAGE: Final = "docs/configuration.md"
PREFIX: Final = "GATEWAY_"
MAX_FILE_BYTES: Final = 1_048_576
_MAX_FAULTS: Final = 20  # shown in one message
# Kubernetes gives every pod such variables for a service called "gateway"; they are nobody's settings.
_SERVICE_LINK: Final = re.compile(r"GATEWAY_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP)\w*)?)\Z")
_SQLITE: Final = "sqlite:///"
DEFAULT_DATABASE: Final = "the default of database_url"
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
NEWLINE: Final = b"\n"


class ConfigurationError(Exception):
    """The configuration cannot be used. `faults` are all of them, each naming the setting and the cure."""

    def __init__(self, faults: list[str]) -> None:
        shown = faults[:_MAX_FAULTS]
        if len(faults) > len(shown):
            shown.append(f"and {len(faults) - len(shown)} more")
        super().__init__("; ".join(shown))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What was read. `folder` is where relative paths start; `file` is None where there was none."""

    settings: Settings
    folder: Path
    file: Path | None = None
    database_source: str = DEFAULT_DATABASE  # which setting it was, for errors


def load(*, file: str | None, environment: Mapping[str, str], folder: Path, options: Mapping[str, Any] | None = None) -> Configuration:
    """Return the configuration. `file` is the `--config` option, `folder` the working folder, `options` typed settings by path.

    Raises ConfigurationError with all faults.
    """
    faults: list[str] = []
    place = _find(file, environment, folder)
    tree = _parse(place) if place else {}
    source = place.name if place else ""
    _overlay_environment(tree, environment, faults)
    settings = _build(tree, source, faults)
    given = {path: value for path, value in (options or {}).items() if value is not None}
    for path, value in given.items():
        if fault := setting.check(path, value):
            faults.append(f"--{path.rpartition('.')[2].replace('_', '-')}: {fault}")
        settings = _with(settings, path, value)
    settings = _fall_back(settings, tree, given, environment, faults)
    _check_together(settings, faults)
    start = place.parent if place else folder
    if faults:
        raise ConfigurationError([*faults, *_contract_faults(settings, start)])
    if "database_url" in given:  # a path that was typed starts where it was typed
        settings = replace(settings, database_url=_database(settings.database_url, folder))
    return Configuration(
        settings=_anchored(settings, start), folder=start, file=place, database_source=_source(given, tree, place, environment)
    )


def _source(given: Mapping[str, Any], tree: Mapping[str, Any], place: Path | None, environment: Mapping[str, str]) -> str:
    """Return where the database's address comes from, as people name it."""
    if "database_url" in given:
        return "--database-url"
    match tree.get("database_url"):
        case setting.EnvironmentText():
            return setting.variable("database_url")
        case None:
            return "$DATABASE_URL" if environment.get("DATABASE_URL") else DEFAULT_DATABASE
        case _:
            return f"database_url in {place}"


def _find(file: str | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    named = file or environment.get("GATEWAY_CONFIG")
    if not named:
        place = folder / FILE_NAME
        return place if place.exists() else None
    place = folder / Path(named).expanduser()
    if not place.is_file():
        raise ConfigurationError([f"{place}: no such file; name an existing one by {'--config' if file else 'GATEWAY_CONFIG'}"])
    return place


def _parse(place: Path) -> dict[str, Any]:
    try:
        with place.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError([f"{place}: cannot be read ({error.strerror})"]) from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError([f"{place}: larger than {MAX_FILE_BYTES} bytes; this is not a configuration"])
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError([f"{place}:{line}: not UTF-8; save it as UTF-8"]) from None
    except (ValueError, RecursionError) as error:
        # The parser's message names line and column and at most one character of the content.
        found = _TOML_PLACE.search(str(error))
        reason = _TOML_PLACE.sub("", str(error)) or "nested too deeply"
        line_of = f":{found[1] or data.count(NEWLINE) + 1}" if found else ""
        raise ConfigurationError([f"{place}{line_of}: not TOML: {reason}"]) from None


# --- the environment, laid over the file's tree


def _overlay_environment(tree: dict[str, Any], environment: Mapping[str, str], faults: list[str]) -> None:
    known = {item.variable: item.path for item in setting.every() if ".NAME." not in item.path}
    mine = {item.path.rpartition(".")[2] for item in setting.every() if ".NAME." in item.path}
    referenced = _referenced(tree) | _referenced([value.split(",") for name, value in environment.items() if name.startswith(PREFIX)])
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX) or name == "GATEWAY_CONFIG" or name in referenced or _SERVICE_LINK.match(name):
            continue
        parts = name.removeprefix(PREFIX).lower().split("__")
        if name in known:
            path = known[name].split(".")
        elif len(parts) == 3 and parts[0] == "providers" and parts[2] in mine:  # noqa: PLR2004 - providers, name, setting
            path = ["providers", _provider_name(tree, parts[1]), parts[2]]
        else:
            every = [*known, *(f"GATEWAY_PROVIDERS__{parts[1].upper()}__{word.upper()}" for word in sorted(mine) if len(parts) > 1)]
            faults.append(f"{name}: no such setting; {hint(name, every, where=_PAGE, prefix=PREFIX)}")
            continue
        _put(tree, path, setting.EnvironmentText(value))


def _referenced(tree: Any) -> set[str]:
    """Return the names of variables that settings refer to by `env:NAME`."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str) and item.strip().startswith("env:"):
            found.add(item.strip().removeprefix("env:"))
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found


def _provider_name(tree: Mapping[str, Any], name: str) -> str:
    configured = tree.get("providers")
    names = configured if isinstance(configured, dict) else {}
    return next((key for key in names if key.replace("-", "_") == name), name)


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        below = tree.get(part)
        if not isinstance(below, dict):
            if below is not None:
                return  # the file has a value where a table belongs, which is reported when the tree is built
            below = tree[part] = {}
        tree = below
    tree[path[-1]] = value


# --- tree -> settings


def _build(tree: Mapping[str, Any], source: str, faults: list[str]) -> Settings:
    values = _fields(Settings, tree, "", source, faults)
    providers: dict[str, ProviderSettings] = {}
    configured = tree.get("providers", {})
    if not isinstance(configured, dict):
        faults.append(_at("providers", source, "must be tables: [providers.NAME]"))
        configured = {}
    for name, table in configured.items():
        path = f"providers.{name}"
        if not setting.PROVIDER_NAME.match(name):
            faults.append(_at(path[:100], source, "a provider's name has only a-z, 0-9, - and _, at most 64 of them"))
        if not isinstance(table, dict):
            faults.append(_at(path[:100], source, f"must be a table: [{path[:100]}]"))
        else:
            found = _fields(ProviderSettings, table, f"{path[:100]}.", source, faults)
            providers[name] = ProviderSettings(**{"contract": "", **found, "name": name})
    return Settings(**{**values, "providers": providers})


def _fields(shape: type, tree: Mapping[str, Any], prefix: str, source: str, faults: list[str]) -> dict[str, Any]:
    items: dict[str, Field[Any]] = {item.name: item for item in fields(shape) if (shape, item.name) != (ProviderSettings, "name")}
    faults.extend(_at(f"{prefix}{key}"[:200], source, _unknown(key, prefix, items)) for key in tree if key not in items)
    values: dict[str, Any] = {}
    for name, item in items.items():
        path = f"{prefix}{name}"
        if path == "providers":
            continue
        if name not in tree:
            if setting.default_of(item) is MISSING:
                faults.append(_at(path, source, "is missing; name a shipped contract (gateway contracts list) or a path"))
        elif is_dataclass(item.type) and isinstance(item.type, type):
            if isinstance(tree[name], dict):
                values[name] = item.type(**_fields(item.type, tree[name], f"{path}.", source, faults))
            else:
                faults.append(_at(path, source, f"must be a table: [{path}]"))
        else:
            where = setting.variable(path) if isinstance(tree[name], setting.EnvironmentText) else _at(path, source)
            value, fault = setting.read(item, tree[name])
            fault = fault or ("" if value is None else setting.check(_general(path), value))
            if fault:
                faults.append(f"{where}: {fault}")
            else:
                values[name] = value
    return values


def _general(path: str) -> str:
    parts = path.split(".")
    return ".".join(["providers", "NAME", *parts[2:]]) if parts[0] == "providers" else path


def _at(path: str, source: str, fault: str = "") -> str:
    place = f"{source}: {path}" if source else path
    return f"{place}: {fault}" if fault else place


def _unknown(key: str, prefix: str, items: Mapping[str, Any]) -> str:
    elsewhere = [item.path for item in setting.every() if item.path.rpartition(".")[2] == key]
    if elsewhere:
        return f"no such setting; the nearest is {elsewhere[0]}"
    return f"no such setting; {hint(prefix + key, [prefix + name for name in items], where=_PAGE, prefix=prefix)}"


def _with(settings: Settings, path: str, value: Any) -> Settings:
    section, _, name = path.rpartition(".")
    if not section:
        return replace(settings, **{name: value})
    return replace(settings, **{section: replace(getattr(settings, section), **{name: value})})


# --- what depends on more than one setting


def _fall_back(
    settings: Settings, tree: Mapping[str, Any], given: Mapping[str, Any], environment: Mapping[str, str], faults: list[str]
) -> Settings:
    web = tree.get("web")
    has_port = "web.port" in given or (isinstance(web, dict) and "port" in web)
    for path, name, present in (
        ("database_url", "DATABASE_URL", "database_url" in tree or "database_url" in given),
        ("web.port", "PORT", has_port),
    ):
        text = environment.get(name)
        if present or not text:
            continue
        value = text if path == "database_url" else int(text) if re.fullmatch("[0-9]{1,5}", text) else -1
        if fault := setting.check(path, value):
            faults.append(f"{name}: {fault}")
        else:
            settings = _with(settings, path, value)
    if "public_url" not in tree:
        host = settings.web.host if settings.web.host not in {"0.0.0.0", "::", ""} else "127.0.0.1"  # noqa: S104 - compared, not bound
        host = f"[{host}]" if ":" in host else host
        settings = replace(settings, public_url=f"http://{host}:{settings.web.port}")
    return replace(settings, public_url=settings.public_url.rstrip("/"))


def _check_together(settings: Settings, faults: list[str]) -> None:
    clockwork = settings.clockwork
    if clockwork.lease_seconds <= clockwork.send_budget_seconds + clockwork.send_margin_seconds:
        faults.append("clockwork.lease_seconds: must be longer than send_budget_seconds + send_margin_seconds, or nothing is ever sent")


def _contract_faults(settings: Settings, start: Path) -> list[str]:
    """Return what is wrong with the contracts, so that whoever has faults to mend hears of all of them."""
    from cli.contracts import contract

    found: list[str] = []
    for name, provider in settings.providers.items():
        try:
            _ = provider.contract and contract(provider.contract, start)
        except ConfigurationError as error:
            found.extend(f"providers.{name[:64]}: {fault}" for fault in error.faults)
    return found


def _anchored(settings: Settings, start: Path) -> Settings:
    """Return the settings with absolute paths, so that nothing below depends on the working folder."""

    def reference(text: str) -> str:
        return f"file:{_absolute(text.removeprefix('file:'), start)}" if text.startswith("file:") else text

    providers = {
        name: replace(
            item,
            secrets=tuple(reference(text) for text in item.secrets),
            credential=reference(item.credential) if item.credential else None,
            params={constant: reference(text) for constant, text in item.params.items()},
        )
        for name, item in settings.providers.items()
    }
    return replace(
        settings,
        database_url=_database(settings.database_url, start),
        key_file=_absolute(settings.key_file, start),
        artifact_dir=_absolute(settings.artifact_dir, start),
        web=replace(settings.web, uds=_absolute(settings.web.uds, start) if settings.web.uds else None),
        providers=providers,
    )


def _database(url: str, start: Path) -> str:
    if url.startswith(_SQLITE):
        return _SQLITE + _absolute(url.removeprefix(_SQLITE), start)
    return re.sub(r"^postgres://", "postgresql://", url)  # the older name of the scheme, which some platforms still use


def _absolute(path: str, start: Path) -> str:
    return str(start.absolute() / Path(path).expanduser())
