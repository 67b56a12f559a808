"""What a client sees of Codex: its notifications and items as session updates."""
