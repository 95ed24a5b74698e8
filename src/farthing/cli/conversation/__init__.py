"""The interactive chat: what was said, what is typed, what is answered."""
