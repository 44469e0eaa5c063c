"""Snapshots: a job's tables and clocks at one moment in one file, and a new run made of such a file.

``take`` reads a job while it runs, ``file`` writes and reads the file, ``restore`` makes the run.
"""
