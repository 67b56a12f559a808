"""The agent, runtime-neutral: sessions, submissions, and the port to a runtime."""
