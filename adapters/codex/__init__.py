"""The Codex driver: its app-server, its threads, its items. Imports driver, core and acp, no other runtime."""
