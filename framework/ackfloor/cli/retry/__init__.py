"""`ackfloor retry`: shows, promotes and buries records that wait in retry topics."""
