"""Who may do what: grants, revocations, quotas, renewal."""
