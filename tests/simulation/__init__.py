"""The production engine under a seeded simulator whose KV cache checks itself (README.md)."""
