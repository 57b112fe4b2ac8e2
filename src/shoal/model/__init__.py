"""Values: ids, resources, devices, jobs and tasks. Nothing here decides or waits."""
