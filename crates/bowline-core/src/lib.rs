//! The Model Context Protocol without I/O.
