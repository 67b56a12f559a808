"""The Codex driver: its app-server, its threads, its items. Imports core and acp, never another runtime."""
