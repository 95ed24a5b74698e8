"""Running a model's chat template: bounded, harmless, and knowing what came from messages.

Imported with jinja2 when the first template is compiled, not before.
"""
