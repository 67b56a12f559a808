"""The app-server as a program: how it is found, started, shared and addressed."""
