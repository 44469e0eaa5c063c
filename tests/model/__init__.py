"""The control scripts against a model of the protocol in plain Python."""
