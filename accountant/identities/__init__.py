"""People, their credentials and sessions, and the log of their actions."""
