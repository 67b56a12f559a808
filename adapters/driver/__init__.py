"""What every runtime driver uses and the agent does not: processes, tasks, texts and files. Knows no runtime."""
