"""The Claude Code driver: its process, its frames, its stored sessions. Imports driver, core and acp, no other runtime."""
