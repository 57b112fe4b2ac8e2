"""The scheduler: jobs, their queue, and which task gets which slot."""
