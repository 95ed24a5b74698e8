"""Requests and responses of the OpenAI API as data: no server, no files, no model."""
