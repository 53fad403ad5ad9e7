"""Rules of notices: allowed addresses, events and retries."""

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core import webhook_rules
from accountant.core.errors import InvalidRequest
from accountant.core.webhook_rules import Target, delay, may_reach, networks, read_events, read_url

LOOPBACK = networks("127.0.0.0/8|::1/128")
INSIDE = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",  # carriers' own
    "169.254.169.254",  # metadata of most clouds
    "100.100.100.200",  # and of one
    "168.63.129.16",  # and of another
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",  # mapped
    "::ffff:169.254.169.254",
    "2002:7f00:1::",  # 6to4
    "2002:a9fe:a9fe::",
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b::a9fe:a9fe",
    "2001:0:7f00:1::",  # Teredo
    "fec0::1",  # site-local, deprecated and still inside
    "feff:ffff::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_no_message_goes_inside(address):
    assert not may_reach(ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"]
)
def test_messages_go_to_the_public_internet(address):
    assert may_reach(ip_address(address))


def test_networks_that_are_allowed_are_reached_and_metadata_never():
    own = networks("10.0.0.0/8|169.254.0.0/16|0.0.0.0/0|::/0")
    assert may_reach(ip_address("10.1.2.3"), own)
    assert may_reach(ip_address("::ffff:10.1.2.3"), own)
    for address in (
        "169.254.169.254",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "100.100.100.200",
    ):
        assert not may_reach(ip_address(address), own)


@given(st.integers(0, 2**32 - 1))
def test_an_address_counts_as_what_it_leads_to(number):
    plain = IPv4Address(number)
    for form in (f"::ffff:{plain}", f"64:ff9b::{plain}"):
        assert may_reach(ip_address(form)) == may_reach(plain)


BAD_URLS = [
    "",
    "http://example.org/",
    "ftp://example.org/",
    "file:///etc/passwd",
    "https://",
    "https:///x",
    "https://a@example.org/",
    "https://a:b@example.org/",
    "https://example.org/#x",
    "https://example.org:0/",
    "https://example.org:99999/",
    "https://exa mple.org/",
    "https://example.org/\r\nX: y",
    "https://example.org\\@10.0.0.1/",
    "https://ex%61mple.org/",
    "https://examplé.org/",
    "https://[::1/",
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://169.254.169.254/latest/meta-data",
    "http://localhost/",
    "https://example.org/" + "a" * 2000,
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_what_may_not_be_registered(url):
    with pytest.raises(InvalidRequest) as caught:
        read_url(url)
    assert caught.value.problems[0].field == "url"


def test_http_leads_to_this_machine_alone_and_only_where_it_is_allowed():
    assert read_url("http://127.0.0.1:8080/x?y=1", LOOPBACK) == Target(
        "http", "127.0.0.1", 8080, "/x?y=1"
    )
    assert read_url("http://localhost/", LOOPBACK).port == 80
    for url in ("http://10.0.0.1/", "http://example.org/"):
        with pytest.raises(InvalidRequest):
            read_url(url, networks("127.0.0.0/8|10.0.0.0/8"))


def test_the_host_header_names_the_host_as_it_was_given():
    assert read_url("https://example.org/x").host_header == "example.org"
    assert read_url("https://example.org:8443").host_header == "example.org:8443"
    assert read_url("https://[2606:2800:220:1:248:1893:25c8:1946]:1/").host_header.startswith(
        "[2606:"
    )


def test_events_are_read_once_each_and_unknown_ones_are_named():
    assert read_events(["job.failed", "job.succeeded", "job.failed"]) == [
        "job.succeeded",
        "job.failed",
    ]
    for wrong in ([], ["job.succeeded", "job.exploded"]):
        with pytest.raises(InvalidRequest):
            read_events(wrong)


@given(st.integers(1, 10**6), st.floats(0.001, 3600))
def test_waits_grow_and_stay_bounded(attempt, first):
    planned = min(first * 4.0 ** min(attempt - 1, 20), 6 * 3600)
    assert 0.5 * planned <= delay(attempt, first) <= 1.5 * planned <= 9 * 3600


def test_every_event_has_a_meaning():
    for event in webhook_rules.EVENTS:
        assert webhook_rules.meaning(event)
