"""One thread of Codex: how it is loaded, which requests concern it, and what it has stored."""
