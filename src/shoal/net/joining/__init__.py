"""How a machine becomes a member: invitations and join requests on the wire."""
