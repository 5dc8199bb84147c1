//! Hostile peers against a default server, and hostile servers against a client: each in real processes.
//!
//! ```text
//! runner ──▶ starts a server (this program again) in a memory cgroup, and reads its VmHWM
//!   ├─ the attack: raw sockets, HTTP/1.1, HTTP/2, lines
//!   └─ an honest client: asks the same server before, during and after
//! ```
//!
//! An attack fails if the peak of the attacked process reaches 256 MiB, if the process dies, panics or
//! logs a message of unbounded length, or if the honest client is not answered in time.
//!
//! ```text
//! cargo test -p scenarios --test hostile                    # all
//! cargo test -p scenarios --test hostile -- A1 continuation # those whose line contains a word
//! cargo test -p scenarios --test hostile -- --no-cgroup     # lets the server grow, to see how far
//! ```
#![cfg_attr(
    not(target_os = "linux"),
    allow(unused, reason = "peaks are read from /proc")
)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    reason = "an attack that cannot be carried out panics, and the runner prints"
)]

mod attack;
mod batches;
mod bodies;
mod client;
mod crowds;
mod events;
mod evil_server;
mod floods;
mod frames;
mod honest;
mod http1;
mod http2;
mod lines;
mod nonsense;
mod pause;
mod queues;
mod rpc;
mod server;
mod shutdown;
mod slow_work;
mod unread;

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod runner;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--serve", setting] => server::main(setting),
        ["--client", task, address] => client::main(task, address),
        _ => runner::main(&arguments),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    println!("hostile peers DID NOT RUN: the peak of a process is read from /proc, which is Linux");
    ExitCode::SUCCESS
}
