"""The rules, one module per part of the protocol. Each module holds `RULES`, a table; `adapters.check.catalogue` joins them."""
