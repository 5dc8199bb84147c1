//! Recordings of each era, served to clients of each era, and replayed against servers.

mod calls;
mod damaged;
mod faults;
mod http;
mod lists;
mod questions;
mod recorded;
mod replay;
mod subscriptions;
mod tasks;
