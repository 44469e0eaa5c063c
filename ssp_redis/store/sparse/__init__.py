"""Sparse tables: rows instead of blocks, made on first touch, at a cost in proportion to the rows touched.

A delta is the rows it touches and their numbers; a base is a hash of the rows that were ever touched.
``docs/tables.md`` says how that gives the same promises as a dense table.
"""
