"""Writes ``requirements/*.txt`` from ``*.in``: all that pip would install here, with hashes.

Run it with the Python that the tests run with, when a client gets a newer version::

    python tests/clients/lock.py [NAME ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"


def lock(source: Path) -> None:
    """Resolves ``source`` for this Python and this kind of machine."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    command += ["--quiet", "--report", "-", "-r", str(source)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    lines = [
        f"# Made by lock.py from {source.name}, Python {sys.version_info[0]}.{sys.version_info[1]}"
    ]
    for item in sorted(report["install"], key=lambda item: item["metadata"]["name"].lower()):
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        lines.append(f"{name}=={version} --hash=sha256:{sha256}")
    source.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{source.stem}: {len(lines) - 1} packages")


if __name__ == "__main__":
    for each in sorted(REQUIREMENTS.glob("*.in")):
        if len(sys.argv) == 1 or each.stem in sys.argv[1:]:
            lock(each)
