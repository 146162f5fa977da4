"""The worker process: joins a mesh, constructs the user's class, serves it, drains."""
