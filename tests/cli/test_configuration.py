"""Configuration: file, environment and options become typed settings, or every fault is named at once."""

import re
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import setting
from cli.configuration import Configuration, ConfigurationError, _build, load
from cli.contracts import contract, of_providers, shipped
from cli.house import constants
from schemas.settings import Settings

SECRET = "whsec_canary-value-that-must-not-be-repeated"


def read(folder: Path, text: str = "", environment: dict[str, str] | None = None, **options: Any) -> Configuration:
    if text:
        (folder / "gateway.toml").write_text(text, encoding="utf-8")
    return load(file=None, environment=environment or {}, folder=folder, options=options)


def faults(folder: Path, text: str = "", environment: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text, environment)
    assert SECRET not in str(caught.value)
    return caught.value.faults


def test_no_file_at_all_works(tmp_path: Path) -> None:
    """Without a file the defaults hold, with paths below the working folder."""
    found = read(tmp_path)
    assert found.file is None
    assert found.settings.database_url == f"sqlite:///{tmp_path}/var/gateway.db"
    assert found.settings.key_file == f"{tmp_path}/var/master.key"
    assert found.settings.artifact_dir == f"{tmp_path}/var/artifacts"
    assert found.settings.web == Settings().web
    assert found.settings.clockwork == Settings().clockwork


def test_the_file_of_the_interface_page_is_read(tmp_path: Path) -> None:
    """Every key of the documented example arrives where it belongs."""
    found = read(
        tmp_path,
        """
        database_url = "postgresql://gateway@db/gateway"
        public_url = "https://hooks.example.com/"
        [providers.reports]
        contract = "contracts/reports.toml"
        base_url = "https://api.reports.example"
        secrets = ["env:REPORTS_WEBHOOK_SECRET", "file:old.secret"]
        credential = "env:REPORTS_API_TOKEN"
        owners = ["acme"]
        result_origins = ["https://files.reports.example"]
        [web]
        port = 9000
        head_seconds = 3
        """,
    ).settings
    assert found.database_url == "postgresql://gateway@db/gateway"
    assert found.public_url == "https://hooks.example.com"
    provider = found.providers["reports"]
    assert provider.name == "reports"
    assert provider.contract == "contracts/reports.toml"
    assert provider.secrets == ("env:REPORTS_WEBHOOK_SECRET", f"file:{tmp_path}/old.secret")
    assert provider.owners == ("acme",)
    assert provider.result_origins == ("https://files.reports.example",)
    assert found.web.port == 9000
    assert found.web.head_seconds == 3.0


def test_a_variable_beats_the_file_and_an_option_beats_both(tmp_path: Path) -> None:
    """Option, then GATEWAY_*, then file."""
    text = '[web]\nport = 1\nhost = "a"\n[providers.replicate-eu]\ncontract = "replicate"\n'
    environment = {
        "GATEWAY_WEB__PORT": "2",
        "GATEWAY_WEB__HOST": "b",
        "GATEWAY_PROVIDERS__REPLICATE_EU__SECRETS": "env:A, env:B",
        "GATEWAY_PROVIDERS__NEW__CONTRACT": "replicate",
        "GATEWAY_CLOCKWORK__POLL_SECONDS": "0.5",
    }
    found = read(tmp_path, text, environment, **{"web.port": 3, "web.host": None}).settings
    assert found.web.port == 3
    assert found.web.host == "b"
    assert found.providers["replicate-eu"].secrets == ("env:A", "env:B")
    assert found.providers["new"].contract == "replicate"
    assert found.clockwork.poll_seconds == 0.5


def test_the_platforms_variables_are_weaker_than_the_file(tmp_path: Path) -> None:
    """$DATABASE_URL and $PORT hold only where nothing of ours is given: a sidecar shares them with its service."""
    environment = {"DATABASE_URL": "postgres://u@h/d", "PORT": "5000"}
    found = read(tmp_path, "", environment).settings
    assert (found.database_url, found.web.port) == ("postgresql://u@h/d", 5000)
    assert read(tmp_path, "", {**environment, "GATEWAY_WEB__PORT": "1"}).settings.web.port == 1
    found = read(tmp_path, 'database_url = "sqlite:///own.db"\nweb.port = 7\n', environment).settings
    assert (found.database_url, found.web.port) == (f"sqlite:///{tmp_path}/own.db", 7)


def test_the_public_address_follows_the_port_unless_it_is_given(tmp_path: Path) -> None:
    """Without a public_url the address is where we listen, on loopback for all addresses."""
    assert read(tmp_path, "", {}, **{"web.port": 9, "web.host": "0.0.0.0"}).settings.public_url == "http://127.0.0.1:9"  # noqa: S104 - compared
    assert read(tmp_path, "", {}, **{"web.host": "::1"}).settings.public_url == "http://[::1]:8080"
    assert read(tmp_path, 'public_url = "https://x.example"', {}, **{"web.port": 9}).settings.public_url == "https://x.example"


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    """A file elsewhere brings its own folder; a path that was typed starts where it was typed."""
    there = tmp_path / "etc"
    there.mkdir()
    (there / "g.toml").write_text('key_file = "k"\nartifact_dir = "/abs"\n', encoding="utf-8")
    found = load(file="etc/g.toml", environment={}, folder=tmp_path)
    assert found.folder == there
    assert found.settings.key_file == f"{there}/k"
    assert found.settings.artifact_dir == "/abs"
    assert found.settings.database_url == f"sqlite:///{there}/var/gateway.db"
    typed = load(file="etc/g.toml", environment={}, folder=tmp_path, options={"database_url": "sqlite:///x.db"})
    assert typed.settings.database_url == f"sqlite:///{tmp_path}/x.db"
    assert load(file=None, environment={"GATEWAY_CONFIG": str(there / "g.toml")}, folder=Path("/")).folder == there


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    """One run shows every mistake, with its setting."""
    text = f"""
    databse_url = "x"
    public_url = "ftp://x"
    log_level = 3
    port = 80
    [web]
    prt = 1
    port = 70000
    [clockwork]
    workers = 0
    [providers.a]
    secrets = ["{SECRET}"]
    [providers.B]
    contract = "x"
    secrets = ["{SECRET}"]
    """
    found = faults(tmp_path, text, {"GATEWAY_WEB__HOSTS": "x", "GATEWAY_WEB__BODY_SECONDS": "soon"})
    expected = [
        "gateway.toml: databse_url: no such setting; the nearest is database_url",
        "gateway.toml: public_url: must be an http",
        "gateway.toml: log_level: must be a text",
        "gateway.toml: port: no such setting; the nearest is web.port",
        "gateway.toml: web.prt: no such setting; the nearest is web.port",
        "gateway.toml: web.port: must be from 0 to 65535",
        "gateway.toml: clockwork.workers: must be greater than 0",
        "gateway.toml: providers.a.secrets: must be a reference",
        "gateway.toml: providers.a.contract: is missing",
        "gateway.toml: providers.B: a provider's name",
        "gateway.toml: providers.B.secrets: must be a reference",
        "providers.B: contract x: no shipped contract",
        "GATEWAY_WEB__HOSTS: no such setting; the nearest is GATEWAY_WEB__HOST",
        "GATEWAY_WEB__BODY_SECONDS: must be a number",
    ]
    assert len(found) == len(expected)
    assert all(any(fault.startswith(start) for fault in found) for start in expected), found


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("web = 1", "gateway.toml: web: must be a table"),
        ("providers = 1", "gateway.toml: providers: must be tables"),
        ("providers.x = 1", "gateway.toml: providers.x: must be a table"),
        ("web.port = true", "gateway.toml: web.port: must be a whole number"),
        ("web.port = 1.5", "gateway.toml: web.port: must be a whole number"),
        ("web.body_seconds = nan", "gateway.toml: web.body_seconds: must be greater"),
        ("web.body_seconds = inf", "gateway.toml: web.body_seconds: must be greater"),
        ('web.trusted_proxies = "x"', "gateway.toml: web.trusted_proxies: must be a list of texts"),
        ("web.trusted_proxies = [1]", "gateway.toml: web.trusted_proxies: must be a list of texts"),
        ('key_file = ""', "gateway.toml: key_file: must be a text"),
        ('key_file = "a\\u0000b"', "gateway.toml: key_file: must be a text"),
        ('database_url = "mysql://x"', "gateway.toml: database_url: must be sqlite"),
        ('database_url = "sqlite:///:memory:"', "gateway.toml: database_url: must be sqlite"),
        ('public_url = "https://u:p@x"', "gateway.toml: public_url: must be an http"),
        ('public_url = "https://[x"', "gateway.toml: public_url: must be an http"),
        ('providers.x = {contract = "stripe", credential = "token"}', "gateway.toml: providers.x.credential: must be a reference"),
        ('providers.x = {contract = "stripe", name = "y"}', "gateway.toml: providers.x.name: no such setting"),
        (
            'providers.x = {contract = "stripe", result_origins = ["https://x/y"]}',
            "gateway.toml: providers.x.result_origins: must be an origin alone",
        ),
        ("clockwork.lease_seconds = 12", "clockwork.lease_seconds: must be longer"),
    ],
)
def test_each_kind_of_mistake_is_refused(tmp_path: Path, text: str, start: str) -> None:
    """A wrong type, range or form is one fault that names the setting."""
    (fault,) = faults(tmp_path, text)
    assert fault.startswith(start)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("web = {", "gateway.toml:1: "),
        ("a = 1\n[web]\nport = = 3\n", "gateway.toml:3: "),
        ("a = 1\na = 2", "gateway.toml:2: "),
        ("\ufeff", "gateway.toml:1: "),
        ("a = " + "[" * 10_000, "gateway.toml: "),
        ("x" * 2_000_000, "gateway.toml: "),
    ],
)
def test_a_file_that_is_not_toml_is_one_fault(tmp_path: Path, text: str, place: str) -> None:
    """Unparsable or huge files name the file and the line, never the content."""
    (fault,) = faults(tmp_path, text)
    assert place in fault
    assert len(fault) < 300


def test_a_file_that_is_not_utf8_names_its_line(tmp_path: Path) -> None:
    """Another encoding is told with the line where it shows."""
    (tmp_path / "gateway.toml").write_bytes(b'log_level = "info"\npublic_url = "\xff"\n')
    (fault,) = faults(tmp_path)
    assert "gateway.toml:2: not UTF-8" in fault


def test_a_word_that_is_near_nothing_gets_no_guess(tmp_path: Path) -> None:
    """The nearest word is told only where it is near; else the known ones, or where they stand."""
    (fault,) = faults(tmp_path, "[web]\nzzz = 1")
    assert "the nearest" not in fault
    assert "web.port" in fault
    (fault,) = faults(tmp_path, "#", {"GATEWAY_QQQQQQ": "x"})
    assert fault == "GATEWAY_QQQQQQ: no such setting; see docs/configuration.md"


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """--config and $GATEWAY_CONFIG are never silently ignored."""
    for file, environment in (("no.toml", {}), (None, {"GATEWAY_CONFIG": "no.toml"})):
        with pytest.raises(ConfigurationError, match="no such file"):
            load(file=file, environment=environment, folder=tmp_path)


def test_variables_that_are_not_settings(tmp_path: Path) -> None:
    """Kubernetes' service links and variables that `env:` refers to are no faults; a typing error is one."""
    links = {
        "GATEWAY_PORT": "tcp://10.0.0.1:80",
        "GATEWAY_SERVICE_HOST": "x",
        "GATEWAY_PORT_8080_TCP_ADDR": "x",
        "GATEWAY_SERVICE_PORT_HTTP": "1",
    }
    assert read(tmp_path, "", links).settings.web.port == 8080
    text = '[providers.a]\ncontract = "stripe"\nsecrets = ["env:GATEWAY_A_SECRET"]'
    environment = {"GATEWAY_A_SECRET": SECRET, "GATEWAY_PROVIDERS__A__CREDENTIAL": "env:GATEWAY_A_TOKEN", "GATEWAY_A_TOKEN": SECRET}
    assert read(tmp_path, text, environment).settings.providers["a"].credential == "env:GATEWAY_A_TOKEN"
    (fault,) = faults(tmp_path, text.replace("A_SECRET", "OTHER"), {"GATEWAY_A_SECRET": SECRET})
    assert fault.startswith("GATEWAY_A_SECRET: no such setting")


def test_an_empty_variable_takes_an_optional_setting_away(tmp_path: Path) -> None:
    """Empty is none for what may be absent, and an empty list for a list."""
    text = 'web.uds = "s"\nweb.trusted_proxies = ["x"]'
    found = read(tmp_path, text, {"GATEWAY_WEB__UDS": "", "GATEWAY_WEB__TRUSTED_PROXIES": ""}).settings
    assert found.web.uds is None
    assert found.web.trusted_proxies == ()
    (fault,) = faults(tmp_path, "", {"GATEWAY_KEY_FILE": ""})
    assert fault.startswith("GATEWAY_KEY_FILE: ")


WORDS = st.sampled_from(["database_url", "providers", "web", "port", "contract", "secrets", "a", "clockwork"]) | st.text(max_size=10)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["env:A", "https://x", "http://["]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from([item.variable.replace("NAME", "X") for item in setting.every()] + ["DATABASE_URL", "PORT", "GATEWAY_X"])


@given(tree=st.dictionaries(WORDS, TREES, max_size=5))
def test_any_tree_is_taken_or_refused(tree: dict[str, Any]) -> None:
    """Whatever a TOML file holds, reading it gives settings and a list of faults, never another error."""
    found: list[str] = []
    settings = _build(tree, "gateway.toml", found)
    assert isinstance(settings, Settings)
    assert settings == Settings() or tree
    assert all(fault.startswith("gateway.toml: ") for fault in found)


@given(environment=st.dictionaries(NAMES, st.text(max_size=40) | st.sampled_from(["http://[", "1e400", "-1", "sqlite:///x"]), max_size=4))
def test_any_environment_is_taken_or_refused(environment: dict[str, str]) -> None:
    """Whatever stands in the variables, the outcome is settings or a ConfigurationError with faults."""
    try:
        found = load(file=None, environment=environment, folder=Path("/nowhere")).settings
    except ConfigurationError as error:
        assert error.faults  # noqa: PT017 - either outcome is right
    else:
        assert Path(found.key_file).is_absolute()


def test_constants_are_values_or_references(tmp_path: Path) -> None:
    """`[providers.NAME.params]`: names are checked, a variable overrides, references are resolved, secrets refused (B9)."""
    text = '[providers.meta]\ncontract = "meta"\n[providers.meta.params]\nverify_token = "env:WORD"\npage = "file:page"\naud = "our-app"\n'
    (tmp_path / "page").write_text("42\n")
    settings = read(tmp_path, text).settings.providers["meta"]
    assert settings.params == {"verify_token": "env:WORD", "page": f"file:{tmp_path}/page", "aud": "our-app"}
    found, missing = constants(settings)
    assert found == {"page": "42", "aud": "our-app"}
    assert list(missing) == ["verify_token"]
    assert "export WORD" in missing["verify_token"]
    overriding = {"GATEWAY_PROVIDERS__META__PARAMS": "verify_token=a=b, aud=c"}
    assert read(tmp_path, text, overriding).settings.providers["meta"].params == {"verify_token": "a=b", "aud": "c"}
    for wrong in ('a = "vault:word"', '"a b" = "x"', "a = 1", 'a = ""'):
        with pytest.raises(ConfigurationError, match=r"providers\.meta\.params") as raised:
            read(tmp_path, f'[providers.meta]\ncontract = "meta"\n[providers.meta.params]\n{wrong}\n')
        assert "word" not in str(raised.value)


# --- the documentation page


def documented() -> dict[str, tuple[str, str, str]]:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| `([^`]+)` \| [^|]{10,} \|$", page, re.MULTILINE)
    assert len(rows) == len({row[0] for row in rows})
    return {name: (kind, default, variable) for name, kind, default, variable in rows}


def shown(default: Any) -> str:
    if default is MISSING:
        return "must be given"
    if default is None:
        return "none"
    if default in ((), {}):
        return "empty"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def test_the_page_and_the_settings_are_equal() -> None:
    """Every setting stands on docs/configuration.md with its type, default and variable, and nothing else does."""
    assert documented() == {item.path: (item.kind, shown(item.default), item.variable) for item in setting.every()}


def test_the_example_of_the_page_is_valid(tmp_path: Path) -> None:
    """The page's own gateway.toml loads."""
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert set(read(tmp_path, example).settings.providers) == {"reports"}


def test_constants_that_stand_in_requests_are_there_and_plain(tmp_path: Path) -> None:
    """H4: a missing constant is a fault of the configuration, not of the first operation; a reference would show a secret in an address."""
    contract = """
name = "own"
origin = "https://api.example"
[actions.run.create]
path = "/accounts/{param.account}/runs"
job_id = "body:id"
[actions.run.status]
path = "/runs/{+remote_job_id}?in={param.region}"
state = "body:s"
readings = { done = "succeeded" }
"""
    (tmp_path / "own.toml").write_text(contract)
    head = '[providers.mine]\ncontract = "own.toml"\n[providers.mine.params]\n'
    with pytest.raises(ConfigurationError) as raised:
        of_providers(read(tmp_path, head + 'account = "env:ACCOUNT"\n').settings.providers, tmp_path)
    told = "\n".join(raised.value.faults)
    assert "providers.mine.params.account: must be a plain value" in told
    assert "providers.mine.params.region: is missing" in told
    known = of_providers(read(tmp_path, head + 'account = "a1"\nregion = "eu"\nother = "env:WORD"\n').settings.providers, tmp_path)
    assert known["mine"].of("run").params == {"account": "a1", "region": "eu"}


def test_an_account_without_constants_and_credential_only_receives(tmp_path: Path) -> None:
    """H4: the webhooks of a provider need nothing of its job API; whoever gives a credential or one constant is told what is missing."""
    head = '[providers.github]\ncontract = "github"\nsecrets = ["env:S"]\n'
    known = of_providers(read(tmp_path, head).settings.providers, tmp_path)["github"]
    assert not known.kinds()
    assert known.signatures
    for more in ('credential = "env:T"\n', '[providers.github.params]\nowner = "acme"\n'):
        with pytest.raises(ConfigurationError, match=r"params\.repo: is missing"):
            of_providers(read(tmp_path, head + more).settings.providers, tmp_path)
    both = head + '[providers.github.params]\nowner = "acme"\nrepo = "r"\n'
    assert of_providers(read(tmp_path, both).settings.providers, tmp_path)["github"].kinds()


def test_every_shipped_contract_that_verifies_starts_with_its_secret_alone(tmp_path: Path) -> None:
    """Nobody has to know the job API of a provider to receive its callbacks; what a scheme or handshake wants is told by doctor."""
    named = [name for name in shipped() if contract(name, tmp_path).signatures]
    text = "".join(f'[providers.{name}]\ncontract = "{name}"\n' for name in named)
    assert len(of_providers(read(tmp_path, text).settings.providers, tmp_path)) == len(named) > 105
