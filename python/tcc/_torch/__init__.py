"""What the package knows about torch. Imported only when a torch object is given."""
