"""A conformance check for ACP v2 agents over stdio: starts an agent and says which rules it keeps (`docs/check.md`)."""
