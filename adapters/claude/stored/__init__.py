"""What Claude Code has stored: entries, sessions, and the texts with which it wraps prompts. Starts no process."""
