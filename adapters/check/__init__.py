"""A conformance check for ACP v2 agents over stdio: starts one, watches the wire, says which rules hold (`docs/check.md`)."""
