"""The Agent Client Protocol, version 2: bytes, messages and models. Contains no agent and no client."""
