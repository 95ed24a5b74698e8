"""Output that keeps to a grammar: JSON schema, regular expression, choice, Lark, GBNF.

``params`` says what is asked, ``json_text``, ``json_schema``, ``schema_cost``, ``regex`` and
``lark`` refuse what could not be kept or would cost too much, ``gbnf`` reads GBNF, which
``gbnf_to_lark`` writes as Lark, ``translation`` writes all of it as llguidance reads it,
``compiler`` makes matchers for a vocabulary, ``matcher`` follows one request.
"""
