//! SIGKILL of servers, clients and bridges at random: each call gets its own answer, or in time an error that names what
//! was lost, and no process is left.
//!
//! ```text
//! cargo test -p bowline-bridge --test storm
//! STORM_KILLS=2000 STORM_SEED=7 cargo test -p bowline-bridge --test storm
//! ```
//!
//! The servers, some clients and the bridges that are killed are this program, started with an argument.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test program prints, and fails by a panic"
)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(unused, reason = "it runs on Linux only")
)]

mod children;
mod killed_bridge;
mod pause;
mod roles;
mod world;

use std::time::Instant;

#[cfg(target_os = "linux")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--serve", ..] => run(roles::serve()),
        ["--bridge", upstream, marker] => run(roles::bridge(upstream, marker)),
        ["--call", url] => run(roles::call_for_ever(url)),
        words if words.contains(&"--list") => println!("storm: test"),
        _ => {
            let kills = setting("STORM_KILLS").unwrap_or(60);
            let seed = setting("STORM_SEED").unwrap_or(1);
            for upstream in ["2026-07-28", "2025-11-25"] {
                let started = Instant::now();
                let ended = run(world::storm(upstream, kills / 2, seed));
                println!(
                    "test storm, upstream at {upstream} ... ok ({ended}, {:?})",
                    started.elapsed()
                );
                let started = Instant::now();
                let ended = run(killed_bridge::storm(upstream, kills.div_ceil(20), seed));
                println!(
                    "test storm of bridges, upstream at {upstream} ... ok ({ended}, {:?})",
                    started.elapsed()
                );
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}

fn run<T>(running: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(running)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
