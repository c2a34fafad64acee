"""Records: what the command line prints and the REST API returns, each field declared once, with its type.

A `Table` declares the records of one kind. `Table.record` makes one of a value of the client; `Table.struct` is their
type, for a specification. Nothing here needs a terminal.
"""
