"""What Claude Code has stored: entries, sessions, and the texts that it wraps prompts in. Starts no process."""
