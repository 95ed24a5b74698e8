"""Who may ask: keys, hosts and origins."""
