"""T5: a model's template that would never end costs its own requests an error, nobody else."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from support.control_stream import control_stream
from support.served import CHAT, serve

TEMPLATES = {
    "endless": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "huge": "{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}",
    "escape": "{{ messages.__class__.__mro__ }}",
    "refuses": "{{ raise_exception('no such message') }}",
}
STATUS = {"endless": 500, "huge": 500, "escape": 400, "refuses": 400}


def test_only_its_own_requests_fail(served_model: Path, tmp_path: Path) -> None:
    model = shutil.copytree(served_model, tmp_path / "hostile")
    (model / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((model / "tokenizer_config.json").read_text())
    source = "".join(
        "{% if messages[0].content == " + f"'{name}'" + " %}" + text + "{% endif %}"
        for name, text in TEMPLATES.items()
    )
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": source}))
    with serve(model) as server, control_stream(server):
        for name, status in STATUS.items():
            begun = time.monotonic()
            response = server.post(CHAT, {"messages": [{"role": "user", "content": name}]})
            # A second is what rendering may take; the rest is for a machine that does other things.
            assert time.monotonic() - begun < 5, name
            assert response.status_code == status, (name, response.text)
            assert "template" in response.json()["error"]["message"]
            assert server.client.get("/health").status_code == 200
