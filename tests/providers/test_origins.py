"""Origins: one canonical form decides where a call may go, and it is the form that is called (F3, B094, B146, B148)."""

from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from providers.origins import address, fault_of, is_any, listed, origin_of, same_base


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://files.example/a?b#c", "https://files.example/a?b"),
        ("HTTPS://FILES.Example:443/A", "https://files.example/A"),
        ("https://files.example./a", "https://files.example/a"),
        ("https://files.example:/a", "https://files.example/a"),
        ("http://files.example:8080?x=https://other.example", "http://files.example:8080?x=https://other.example"),
        ("https://b\u00fccher.example/", "https://xn--bcher-kva.example/"),
        ("https://XN--BCHER-KVA.example/", "https://xn--bcher-kva.example/"),
        ("https://files\u3002example/", "https://files.example/"),
        ("https://\uff11\uff12\uff17.0.0.1/", "https://127.0.0.1/"),
        ("https://[2606:4700:0:0::1]/", "https://[2606:4700::1]/"),
        ("https://[::FFFF:127.0.0.1]/", "https://[::ffff:7f00:1]/"),
    ],
)
def test_one_address_has_one_form(url: str, canonical: str) -> None:
    """Case, the scheme's own port, the trailing dot, IDN and IPv6 spellings make no second origin (F3)."""
    found = address(url)
    assert found is not None
    assert found.url == canonical
    assert address(found.url) == found


@pytest.mark.parametrize(
    "url",
    [
        "https://u@h.example/", "https://u:p@h.example/", "https://a.example\\@b.example/", "https://a.example/x\\y", "https://%61.example/",
        "https://2130706433/", "https://0x7f000001/", "https://017700000001/", "https://127.1/", "https://127.0.1/", "https://0x7f.0.0.1/",
        "https://0177.0.0.1/", "https://127.0.0.01/", "https://1.2.3.256/", "https://1.2.3.4.5/", "https://0/", "https://a.0x/",
        "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::1/", "https://[127.0.0.1]/", "https://[v1.x]/", "https://::1/",
        "https://h.example:0/", "https://h.example:65536/", "https://h.example:99999/", "https://h.example:8a/", "https://h.example:-1/",
        "https://h..example/", "https://.h.example/", "https://h.example../", "https://-h.example/", "https://h-.example/",
        "https://*.h.example/", "https://" + "a" * 64 + ".example/", "https://" + "a." * 127 + "ab/", "https://\uff05\uff13\uff11.example/",
        "https:///x", "https://", "https:h.example", "//h.example/", "ftp://h.example/", "file:///etc/passwd", "javascript:alert(1)", "",
        "https://h.example/a b", "https://h.example/\r\nx", "https://h.\texample/", " https://h.example/", "https://h.example/\x00",
        "https://h.example/\u00e9", "https://" + "x" * 9_000, "https://h.example/" + "x" * 9_000,
    ],
)  # fmt: skip
def test_what_parsers_could_read_differently_is_no_address(url: str) -> None:
    """Userinfo, backslashes, escapes in hosts, numbers that mean IPv4 to some, strange ports: nothing is called (F3, B146)."""
    assert address(url) is None
    assert origin_of(url) == ""


@given(st.one_of(st.text(max_size=60), st.text("htps:/[]@\\%.0123456789xa?#*", max_size=30).map("https://".__add__)))
def test_every_reader_sees_the_host_that_was_judged(text: str) -> None:
    """Whatever a stranger writes: no exception, and the three URL readers on the way agree about host and port (F3, B148)."""
    found = address(text)
    if found is None:
        return
    assert found.url.isascii()
    host, port = found.host.strip("[]"), int(found.origin.rpartition(":")[2])
    standard, client, connector = urlsplit(found.url), httpx.URL(found.url), URL(found.url, encoded=True)
    default = 443 if found.https else 80
    assert (standard.hostname, standard.port or default) == (host, port)
    assert (client.host, client.port or default) == (host, port)
    assert (connector.raw_host, connector.port) == (host, port)
    assert (standard.username, client.userinfo, connector.user) == (None, b"", None)


@pytest.mark.parametrize(
    ("origin", "entry", "allowed"),
    [
        ("https://files.example:443", "https://FILES.example./", True),
        ("https://files.example:443", "https://files.example:8443", False),
        ("http://files.example:80", "https://files.example", False),
        ("https://a.files.example:443", "https://*.files.example", True),
        ("https://a.b.files.example:443", "https://*.files.example", True),
        ("https://files.example:443", "https://*.files.example", False),
        ("https://evilfiles.example:443", "https://*.files.example", False),
        ("https://a.files.example:8443", "https://*.files.example", False),
        ("http://a.files.example:443", "https://*.files.example", False),
        ("https://files.example:443", "https://*.example", False),
        ("", "not an origin", False),
    ],
)
def test_a_list_allows_what_it_names(origin: str, entry: str, allowed: bool) -> None:  # noqa: FBT001 - a column of the table
    """Scheme, host and port must be the listed ones; `*.` stands for hosts below, never for their parent or a look-alike (B094)."""
    assert (listed(origin, ["https://unrelated.example", entry]) == entry) is allowed


@pytest.mark.parametrize("entry", ["https://*.com", "http://*.files.example", "https://*.3.4", "https://*.*.files.example"])
def test_a_list_entry_that_means_too_much_is_refused(entry: str) -> None:
    """All of a top-level name, plain http, numbers: an operator is told, and such an entry allows nothing (F3)."""
    assert fault_of(entry)
    assert is_any(entry)
    for origin in ("https://x.com:443", "http://a.files.example:80", "https://1.2.3.4:443", "https://a.b.files.example:443"):
        assert listed(origin, [entry]) is None


@pytest.mark.parametrize(("one", "other"), [("https://API.example/", "https://api.example:443"), ("http://a/v1/", "http://a/v1")])
def test_a_base_is_the_same_however_it_is_written(one: str, other: str) -> None:
    """An operator who writes the same address in another way has not moved the provider."""
    assert same_base(one, other)
    assert not same_base(one, other + "x")
    assert not same_base("::", one)
