"""The writers: one transaction a function, and the only code that changes an account or a job."""
