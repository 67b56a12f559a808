"""Versions of ACP beside the core's own: each is a `Dialect` of `core.peer`."""
