//! How a client comes by a token, and keeps it.
