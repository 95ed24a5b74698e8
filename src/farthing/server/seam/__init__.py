"""The seam between the server and its engine: plain messages, a stream of them each way."""
