//! The rules of the Streamable HTTP binding that need no socket.
