"""The explorer of the store: what workers do with tables, on the real scripts, every interleaving within bounds.

Values are symbols: a delta says whose it is and of which clock, a sum is the deltas in the order in which they were
added. So a base or a view is compared with the very prefix of the log that it claims to be.
"""
