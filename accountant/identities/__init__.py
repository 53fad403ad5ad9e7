"""Who acts: people, their credentials and sessions, and what they did."""
