"""How large a grammar may be. Within these no grammar takes a second or much memory to compile.

What llguidance cannot bound by itself (time, memory, its own stack) is bounded here; the rest by
``LLParserLimits`` in ``translation``.
"""

from __future__ import annotations

MAX_SOURCE_BYTES = 64 << 10
"""A schema, a grammar, or all choices together, as UTF-8."""

MAX_DEPTH = 32
"""Schemas inside schemas, values inside values, brackets of an expression."""

MAX_COUNT = 100_000
"""minItems, maxItems, minProperties, maxProperties, minLength, maxLength."""

MAX_PROPERTIES = 1_000
"""Names in ``properties`` and ``required``, in the whole schema."""

MAX_PATTERN_PAIRS = 200
"""Pairs of ``patternProperties`` of one object, summed over the schema."""

MAX_ONE_OF = 64
"""Options of a ``oneOf``: each pair must be shown to exclude each other."""

MAX_REFERENCE_DEPTH = 64
"""Schemas and references that lead from one to the next while a schema is read."""

MAX_COMBINED_SIZE = 50_000
"""Schemas that may result where several must hold at once."""

MAX_LITERAL_BYTES = 4 << 10
"""A string of ``const`` or ``enum``, a property name, one choice."""

MAX_EXPRESSION_CHARACTERS = 4_096
"""One regular expression."""

MAX_EXPRESSION_WEIGHT = 10_000
"""Characters of an expression written out, counted repeats such as ``((a{100}){100})`` at most."""

MAX_SCHEMA_WEIGHT = 50_000
"""The same of all ``pattern`` and all literal strings of a schema together."""

MAX_TOGETHER = 8
"""Patterns that one string must match at once: states of the engine double with each."""

MAX_MULTIPLE = 10_000
"""The digits of every ``multipleOf`` as a whole number, 25 for 0.25, summed over the schema."""

MAX_LARK_DEFINITIONS = 250
"""Rules and terminals; rules of GBNF."""

MAX_LARK_NESTING = 400
"""Definitions and the deepest brackets of each, summed: no way through a grammar is longer."""

MAX_LARK_LITERAL_BYTES = 256
"""One string of a Lark or GBNF grammar."""

MAX_GBNF_STEPS = 500_000
"""Steps in which the parts of a GBNF grammar that leads back to itself are held together."""

MAX_GBNF_LOOP = 16
"""Different characters of a counted repeat in GBNF of which each must be a terminal of its own.

Of 16 that are digits and letters, words of a vocabulary of 150,000 keep a mask within the limits;
of 26 letters they do not from counts of 3 on.
"""
