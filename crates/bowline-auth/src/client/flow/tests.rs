//! The flow, without I/O.
