//! The server side of the tasks extension, as clients see it: over a wire, with scripted JSON.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod faulty_store;
mod support;

mod cancel;
mod convert;
mod discard;
mod durability;
mod lifecycle;
mod listen;
mod macros;
mod principals;
mod questions;
mod shutdown;
