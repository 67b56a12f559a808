"""The Agent Client Protocol, version 2: bytes, messages and models. No agent and no client in it."""
