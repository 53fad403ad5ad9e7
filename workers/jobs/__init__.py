"""What runs a job: the Celery application and its tasks, leases, staging, the relay of messages."""
