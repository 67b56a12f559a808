"""What a client sees of Claude Code: its frames and entries as session updates."""
