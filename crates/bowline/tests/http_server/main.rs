//! The HTTP server, over sockets and over pipes in memory.

mod support;

mod answers;
mod disconnect;
mod refusals;
mod shutdown;
