"""Claude Code as a program: how it is found, started, spoken to and ended, and who may use a session."""
