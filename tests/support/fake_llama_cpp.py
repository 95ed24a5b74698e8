"""A llama.cpp whose benchmarks answer at once, and write down how they were called."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_BENCH = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(["bench", *sys.argv[1:]]) + "\\n")
if sys.argv[1:] == ["--version"]:
    print("version: 1.2.3 (build 7)", file=sys.stderr)
    sys.exit(0)
{fault}
rate = 400.0 if sys.argv[sys.argv.index("-p") + 1] != "0" else 50.0
print(json.dumps([{{"avg_ts": rate}}]))
"""

_BATCHED = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(["batched", *sys.argv[1:]]) + "\\n")
{fault}
print("main: loading")
for n in sys.argv[sys.argv.index("-npl") + 1].split(","):
    print(json.dumps({{"pl": int(n), "speed_tg": 10.0 * int(n)}}))
"""


_SERVER = """#!{python}
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
with open({log!r}, "a") as log:
    log.write(json.dumps(["server", *sys.argv[1:]]) + "\\n")
if sys.argv[1:] == ["--version"]:
    print("version: 1.2.3 (build 7)", file=sys.stderr)
    sys.exit(0)
short = 0
{fault}
asked = threading.Semaphore(int(sys.argv[sys.argv.index("-np") + 1]))

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with asked:
            self.send_response(200)
            self.end_headers()
            count = body["n_predict"] - short
            for i in range(count):
                time.sleep(0.002)
                line = {{"content": "x", "tokens_predicted": i + 1, "stop": i == count - 1}}
                self.wfile.write(b"data: " + json.dumps(line).encode() + b"\\n\\n")

port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def write_llama_server(folder: Path, fault: str = "") -> Path:
    """A server in ``folder`` that answers each token in 2 ms; ``fault`` is code that it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "llama-server"
    log = str(folder / "calls.jsonl")
    path.write_text(_SERVER.format(python=sys.executable, log=log, fault=fault))
    path.chmod(0o755)
    return folder


def write_llama_cpp(folder: Path, *, batched: bool = True, fault: str = "") -> Path:
    """Programs in ``folder``/bin; ``fault`` is code that they run. Returns ``folder``."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    sources = {"llama-bench": _BENCH} | ({"llama-batched-bench": _BATCHED} if batched else {})
    for name, source in sources.items():
        path = programs / name
        log = str(folder / "calls.jsonl")
        path.write_text(source.format(python=sys.executable, log=log, fault=fault))
        path.chmod(0o755)
    return folder


def calls(folder: Path) -> list[list[str]]:
    """How the programs were called, in order."""
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
