"""Bits chosen per matrix: what each costs the model's predictions, and how to spend a size best.

Why so: ``docs/decisions/mixed-bits.md``.
"""
