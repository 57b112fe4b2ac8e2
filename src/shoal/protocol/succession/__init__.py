"""Messages of jobs that outlive their scheduler."""
