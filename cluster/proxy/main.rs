//! `cluster-proxy never|connection ADDRESS…`: the proxy as a program. Prints `READY` and its URL, and serves until it is
//! killed.

#![allow(clippy::print_stdout, reason = "a program of tests")]

use std::error::Error;
use std::net::SocketAddr;

use cluster_tests::{RoundRobinProxy, Stickiness};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (stickiness, replicas) = match words.split_first() {
        Some((word, replicas)) if word == "never" => (Stickiness::Never, replicas),
        Some((word, replicas)) if word == "connection" => (Stickiness::Connection, replicas),
        _ => return Err("usage: cluster-proxy never|connection ADDRESS…".into()),
    };
    let replicas: Result<Vec<SocketAddr>, _> = replicas.iter().map(|word| word.parse()).collect();
    let proxy = RoundRobinProxy::start(stickiness, replicas?).await?;
    println!("READY {}", proxy.url());
    std::future::pending().await
}
