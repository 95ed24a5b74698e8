"""What the first request would wait for is done before it comes."""

from __future__ import annotations

import contextlib
import json

from farthing.errors import FarthingError
from farthing.openai_protocol.endpoints import CHAT, COMPLETIONS
from farthing.openai_protocol.served_model import ServedModel
from farthing.server.routes.generation import ready

BODIES = {
    CHAT: {"messages": [{"role": "user", "content": "A farthing"}]},
    COMPLETIONS: {"prompt": "A farthing"},
}


def warm_up(served: ServedModel) -> None:
    """Reads and encodes a request of each kind: modules are imported and tables made on the way."""
    for url, body in BODIES.items():
        with contextlib.suppress(FarthingError):  # such as one for a model that cannot chat
            ready(url, json.dumps(body).encode(), served)
