"""The execution of jobs: the Celery application and its tasks, leases, staging, and the message
relay.
"""
