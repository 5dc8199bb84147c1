//! Hostile clients against a server with default limits, and hostile servers against a client, in real processes.
//!
//! ```text
//! runner ──▶ starts a server (this program again) in a memory cgroup, and reads its VmHWM
//!   ├─ the attack: raw sockets, HTTP/1.1, HTTP/2, line wire
//!   └─ an honest client: calls the same server before, during and after
//! ```
//!
//! The test of an attack fails if the peak memory of the attacked process reaches 256 MiB, if the process dies, panics
//! or logs an overlong event, or if the honest client gets no response in time.
//!
//! ```text
//! cargo test -p scenarios --test hostile                    # all
//! cargo test -p scenarios --test hostile -- A1 continuation # attacks whose line contains one of the words
//! cargo test -p scenarios --test hostile -- --no-cgroup     # without the memory limit
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
    reason = "an attack that fails to run panics, and the runner prints"
)]

mod attack;
mod attacked_client;
mod attacked_server;
mod batches;
mod bodies;
mod extreme_json;
mod floods;
mod honest_client;
mod hostile_server;
mod http1;
mod http2;
mod kept_state;
mod line_wire;
mod many_connections;
mod open_heads;
mod pause;
mod queues;
mod raw_http2;
mod rpc;
mod shutdown;
mod slow_work;
mod stored_events;
mod unread_responses;

#[cfg(target_os = "linux")]
mod attacked_process;
#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod runner;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--serve", setup] => attacked_server::main(setup),
        ["--client", task, address] => attacked_client::main(task, address),
        _ => runner::main(&arguments),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    println!("hostile peers DID NOT RUN: peak memory is read from /proc, which requires Linux");
    ExitCode::SUCCESS
}
