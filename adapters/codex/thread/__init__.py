"""One thread of Codex: how it is loaded, what is asked about it, and what it has stored."""
