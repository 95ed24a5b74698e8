"""Random texts to try tokenizers on."""

from __future__ import annotations

import random

_PIECES = (
    *("the", " quick", " brown", "'s", "'LL", " don't", "Hello", " World", "naïve", "Straße"),
    *("int main(void) {\n", "\treturn x[i] += 1;\n", "def f(a, b=None):\n    ", "=> ", "!=", "::"),
    *("Привет", " мир", "Ελληνικά", "你好世界", "こんにちは", "안녕하세요", "שלום", "مرحبا"),
    *("नमस्ते", "ไทย", "e\u0301", "A\u030a", "\u1e9b\u0323", "ﬁ", "½", "٣", "四"),
    *(
        "🙂",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "🇫🇷",
        "👍🏽",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u2028",
        "\xa0",
        "\u3000",
    ),
    *("\x00", "\x07", "\x1b[0m", "\x7f", "\x85", "\U0010ffff", "\ue000", "\ufffd"),
    *("\r\n", "\r", "\n\n\n", "    ", "\t\t", " ", "  \n", " \r\n "),
    *("a" * 70, "=" * 50, " " * 33, "\n" * 40, "▁", "▁▁", " ▁", "<0x0A>", "<0xe2>", "</b>", "<s>"),
    *("0", "1234567", "3.14159", "1,000", "²", "<", "|", ">", "<|", "|>", "im_start", "im_end"),
)


def random_texts(count: int, seed: int, extra: tuple[str, ...] = ()) -> list[str]:
    """Texts of mixed scripts, code, emoji, control characters, digits, white space and long runs.

    ``extra`` are further pieces to make them of.
    """
    source = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = source.choices((*_PIECES, *extra), k=source.randrange(0, 14))
        parts += [chr(source.randrange(0x20, 0x3000)) for _ in range(source.randrange(3))]
        source.shuffle(parts)
        texts.append("".join(parts))
    return texts
