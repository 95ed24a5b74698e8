"""Several programs in turns, a process each, and the ratio of the first to each of the others.

    python bench/peers/in_turns.py [--rounds 5] NAME=COMMAND NAME=COMMAND ...

A COMMAND prints one JSON object of rates. The first is the one that is compared. Each round starts
every program once, so that what the machine does to one it does to all. Prints the rounds, then
medians and the medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess


def run(command: str) -> dict[str, float]:
    output = subprocess.run(shlex.split(command), check=True, capture_output=True, text=True)
    rates: dict[str, float] = json.loads(output.stdout.strip().splitlines()[-1])
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    programs = dict(program.split("=", 1) for program in options.programs)
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(options.rounds):
        rounds.append({name: run(command) for name, command in programs.items()})
        print(f"round {number + 1}:", json.dumps(rounds[-1]), flush=True)
    first, *others = programs
    for what in rounds[0][first]:
        rates = {name: [each[name][what] for each in rounds] for name in programs}
        line = f"{what}: {first} {statistics.median(rates[first]):.1f}"
        for other in others:
            ratios = sorted(a / b for a, b in zip(rates[first], rates[other], strict=True))
            line += (
                f"; {other} {statistics.median(rates[other]):.1f}, ratio "
                f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            )
        print(line)


if __name__ == "__main__":
    main()
