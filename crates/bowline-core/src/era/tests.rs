//! Laws of the door, and the tables of which message belongs to which era.
