"""JSON as the API writes it."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response


def json_bytes(body: Any) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def json_response(body: bytes) -> Response:
    """A response of JSON."""
    return Response(body, media_type="application/json")
