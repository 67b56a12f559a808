"""ACP agents for coding runtimes, with prompts that are safe to send again."""

__version__ = "0.1.0"
