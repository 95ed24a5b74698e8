"""Writes the battery ``long`` from the packages that its facts and questions come from.

apt-get download bsdgames && dpkg -x bsdgames_*.deb games
pip download --no-deps chatterbot-corpus==1.3.3 && unzip chatterbot_corpus-*.whl -d corpus
python bench/battery/make.py games corpus > src/farthing/evaluation/battery/data/long.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import quiz
import trivia

QUIZ = "usr/share/games/bsdgames/quiz"


def main() -> None:
    """One question a line, by file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", type=Path, help="where bsdgames was unpacked")
    parser.add_argument("corpus", type=Path, help="where chatterbot-corpus was unpacked")
    arguments = parser.parse_args()
    for name, (question, answers) in quiz.questions(arguments.games / QUIZ):
        write(question, answers, f"bsdgames quiz/{name}")
    for question, answers in trivia.questions(arguments.corpus):
        write(question, answers, "chatterbot-corpus english/trivia.yml")


def write(question: str, answers: list[str], source: str) -> None:
    """A line of the battery."""
    line = {"question": question, "answers": answers, "source": source}
    print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
