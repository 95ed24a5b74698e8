"""Answers as streams of server-sent events."""
