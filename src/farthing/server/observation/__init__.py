"""What can be seen of a server: metrics, logs, traces."""
