"""Names and origins that a server has on a loopback address, and elsewhere."""

from __future__ import annotations

import pytest

from farthing.errors import InvalidParameterError
from farthing.server.access.rules import AccessRules, host_name, is_loopback

LOCAL = AccessRules()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8000",
        "localhost.:8000",
        "app.localhost:8000",
        "127.0.0.1",
        "127.0.0.1:8000",
        "127.255.1.2:80",
        "[::1]",
        "[::1]:8000",
        "[0:0:0:0:0:0:0:1]:8000",
        "[::ffff:127.0.0.1]:8000",
    ],
)
def test_this_machine_has_these_names(host: str) -> None:
    assert LOCAL.allows_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "evil.example#127.0.0.1",
        "evil@127.0.0.1",
        "127.0.0.1@evil.example",
        "127.0.0.1,evil.example",
        "127.0.0.1 evil.example",
        "0.0.0.0:8000",
        "192.168.1.2:8000",
        "[::]:8000",
        "[::2]:8000",
        "[::ffff:192.168.1.2]",
        "::1",
        "[::1",
        "[::1]x",
        "localhost:",
        "localhost:x",
        "localhost:80:80",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "127.0.0.01",
        "http://localhost",
        "localhost/",
        "löcalhost",
    ],
)
def test_no_other_name_is_this_machine(host: str) -> None:
    assert not LOCAL.allows_host(host)


def test_more_names_can_be_allowed() -> None:
    rules = AccessRules(allowed_hosts=("Models.Lan", "*.example.com", "[fd00::1]"))
    for host in ("models.lan:80", "a.example.com", "a.b.example.com:1", "[fd00::1]:2", "localhost"):
        assert rules.allows_host(host), host
    for host in ("example.com", "evilexample.com", "models.lan.evil", "[fd00::2]"):
        assert not rules.allows_host(host), host
    assert AccessRules(allowed_hosts=("*",)).allows_host("anything.example")
    assert not AccessRules(allowed_hosts=("*",)).allows_host("bad host")


def test_elsewhere_any_name_will_do_until_names_are_given() -> None:
    assert AccessRules(loopback=False).allows_host("evil.example")
    public = AccessRules(loopback=False, allowed_hosts=("api.example",))
    assert public.allows_host("api.example:443")
    assert not public.allows_host("evil.example")
    assert not public.allows_host("localhost")


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("http://LOCALHOST:8000", "localhost:8000", True),
        ("http://127.0.0.1", "127.0.0.1:80", True),
        ("https://127.0.0.1", "127.0.0.1:443", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://localhost:3000", "localhost:8000", False),
        ("http://localhost:8000", "127.0.0.1:8000", False),
        ("https://127.0.0.1", "127.0.0.1:80", False),
        ("https://evil.example", "localhost:8000", False),
        ("http://localhost:8000.evil.example", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("file://", "localhost:8000", False),
        ("http://localhost:8000", None, False),
    ],
)
def test_a_page_may_ask_only_where_it_comes_from(
    origin: str, host: str | None, allowed: bool
) -> None:
    assert LOCAL.allows_origin(origin, host) is allowed


def test_more_origins_can_be_allowed() -> None:
    rules = AccessRules(allowed_origins=("http://localhost:3000", "null"))
    assert rules.allows_origin("http://localhost:3000", "localhost:8000")
    assert rules.allows_origin("null", "localhost:8000")
    assert not rules.allows_origin("http://localhost:3001", "localhost:8000")
    assert AccessRules(allowed_origins=("*",)).allows_origin("https://any.example", "localhost")


@pytest.mark.parametrize(
    "origin", ["localhost:3000", "http://a/", "http://a/b", "", "http://", "a b"]
)
def test_an_origin_is_written_as_browsers_send_it(origin: str) -> None:
    with pytest.raises(InvalidParameterError, match="write it as a browser sends it"):
        AccessRules(allowed_origins=(origin,))


def test_credentials_are_never_allowed_to_all() -> None:
    with pytest.raises(InvalidParameterError, match="name those that may send them"):
        AccessRules(allowed_origins=("*",), allow_credentials=True)
    assert AccessRules(allowed_origins=("http://a",), allow_credentials=True).allow_credentials


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_an_address_to_bind_to_is_loopback_or_not(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_the_name_of_a_host_is_without_port_and_brackets() -> None:
    assert host_name("A.example:80") == "a.example"
    assert host_name("[::1]:80") == "::1"
    assert host_name("a:b:c") is None
