"""Pure arithmetic of privacy: no database, no web, no torch. Imports only errors, numbers and events."""
