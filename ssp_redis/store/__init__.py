"""The store: tables as byte blobs, summed by the clients, ordered by the log.

It knows its tag (a key prefix and a run) and a log, nothing of waiting: see ``docs/tables.md`` for the arrangement.
"""
