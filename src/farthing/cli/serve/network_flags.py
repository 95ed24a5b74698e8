"""Flags of ``farthing serve``: the network, and who may come over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from farthing.cli.serve.option import Names, flag


@dataclass(frozen=True, slots=True)
class NetworkFlags:
    """Where it listens, and what a connection may do."""

    host: Annotated[
        str, flag("--host", metavar="HOST", shows=True, help="Address to listen on.")
    ] = "127.0.0.1"
    port: Annotated[
        int,
        flag("--port", metavar="PORT", min=0, max=65535, shows=True, help="0 takes a free one."),
    ] = 8000
    uds: Annotated[
        str | None, flag("--uds", metavar="PATH", help="Listen on this Unix socket instead.")
    ] = None
    ssl_keyfile: Annotated[
        str | None,
        flag("--ssl-keyfile", "--ssl-key-file", metavar="FILE", help="Key for HTTPS, PEM."),
    ] = None
    ssl_certfile: Annotated[
        str | None,
        flag(
            "--ssl-certfile", "--ssl-cert-file", metavar="FILE", help="Certificate for HTTPS, PEM."
        ),
    ] = None
    ssl_ca_certs: Annotated[
        str | None,
        flag("--ssl-ca-certs", metavar="FILE", help="Ask clients for a certificate of these CAs."),
    ] = None
    max_connections: Annotated[
        int | None,
        flag(
            "--max-connections",
            metavar="N",
            min=1,
            help="Connections at a time; by default what the system's file limit allows.",
        ),
    ] = None
    max_body_bytes: Annotated[
        int,
        flag(
            "--max-body-bytes",
            metavar="BYTES",
            min=1024,
            max=8 << 20,
            shows=True,
            help="Of a request.",
        ),
    ] = 8 << 20
    header_timeout: Annotated[
        float,
        flag("--header-timeout", metavar="S", min=0.1, shows=True, help="To send the headers in."),
    ] = 10.0
    body_timeout: Annotated[
        float,
        flag("--body-timeout", metavar="S", min=0.1, shows=True, help="To send the body in."),
    ] = 30.0
    keep_alive_timeout: Annotated[
        float,
        flag(
            "--keep-alive-timeout",
            metavar="S",
            min=0.1,
            shows=True,
            help="After which a connection without a request is closed.",
        ),
    ] = 75.0
    write_timeout: Annotated[
        float,
        flag(
            *("--write-timeout",),
            metavar="S",
            min=0.1,
            shows=True,
            help="After which a client that does not read its answer is cut off.",
        ),
    ] = 30.0
    sse_keep_alive_interval: Annotated[
        float,
        flag(
            *("--sse-keep-alive-interval", "--sse-ping-interval"),
            metavar="S",
            min=0.0,
            shows=True,
            help="A comment is sent after so long a silence of a stream; 0: none.",
        ),
    ] = 15.0
    request_timeout: Annotated[
        float | None,
        flag(
            "--request-timeout",
            metavar="S",
            min=0.001,
            help="After which a request ends with an error (504); by default never.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class AccessFlags:
    """Who may ask, and how much."""

    api_key: Annotated[
        Names,
        flag(
            "--api-key",
            metavar="KEY",
            help="Ask for this key; may be repeated. Others see it in the list of processes: a "
            "file or FARTHING_API_KEY is better.",
        ),
    ] = None
    api_key_file: Annotated[
        str | None,
        flag(
            "--api-key-file",
            metavar="FILE",
            help="Keys, one a line, each with name=, requests_per_minute=, "
            "max_concurrent_requests= and priority= if wanted.",
        ),
    ] = None
    requests_per_minute: Annotated[
        int | None,
        flag("--requests-per-minute", metavar="N", min=1, help="That each key may send."),
    ] = None
    max_concurrent_requests: Annotated[
        int | None,
        flag("--max-concurrent-requests", metavar="N", min=1, help="That each key may have open."),
    ] = None
    allowed_hosts: Annotated[
        Names,
        flag(
            "--allowed-hosts",
            metavar="HOST",
            help="A name of this server that requests may carry, such as a proxy's; may be "
            "repeated. On a loopback address only those of this machine are taken otherwise.",
        ),
    ] = None
    allowed_origins: Annotated[
        Names,
        flag(
            "--allowed-origins",
            "--cors-origins",
            metavar="ORIGIN",
            help="Web pages that may use the server from a browser (CORS); may be repeated, * is "
            "all. None otherwise.",
        ),
    ] = None
    allowed_methods: Annotated[
        Names, flag("--allowed-methods", metavar="METHOD", help="That such pages may use.")
    ] = None
    allowed_headers: Annotated[
        Names, flag("--allowed-headers", metavar="HEADER", help="That such pages may send.")
    ] = None
    allow_credentials: Annotated[
        bool, flag("--allow-credentials", help="Let browsers send cookies with such requests.")
    ] = False
