"""Claude Code as a program: how it is found, started, addressed and ended, and who may use a session."""
