"""The Claude Code driver: its process, its frames, its stored sessions. Imports core and acp, never another runtime."""
