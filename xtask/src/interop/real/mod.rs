//! `cargo xtask interop --real`: programs that others wrote, as they come from their registry, in their default mode.
//!
//! They do not offer our fixture, so that less is checked of each: one tool is listed and called, one call is dropped.
//!
//! ```text
//! peers    the table of programs: what is installed, how it is started, what is called
//! install  installs a program, and fills in where things are
//! ```

mod install;
mod peers;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use install::Places;
use peers::{PEERS, RealPeer, Role, Way};

use super::cannot::Cannot;
use super::cell::{Cell, Pair, Side, Transport};
use super::peers::Ours;
use crate::serving::Serving;

/// What is checked, in this order.
pub(crate) const CHECKS: &[&str] = &["open", "list", "call", "abandon", "close"];

/// The names of all programs.
pub(crate) fn names() -> Vec<&'static str> {
    PEERS.iter().map(|peer| peer.name).collect()
}

/// Installs and runs every program in every way that it has, several at a time. One that cannot be installed or
/// started does not keep the others from being run.
pub(crate) fn run(root: &Path, ours: &Ours, cannot: &Cannot) -> io::Result<Vec<Cell>> {
    let data = install::data(root)?;
    let waiting = Mutex::new(PEERS.iter().enumerate());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = lock(&waiting).next();
                    let Some((index, peer)) = next else { break };
                    let cells = run_peer(root, ours, peer, &data, cannot);
                    let mut done = lock(&done);
                    match &cells {
                        Ok(cells) => cells.iter().for_each(|cell| println!("{cell}")),
                        Err(error) => println!("{} could not be run: {error}", peer.name),
                    }
                    done.push((index, cells));
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    done.sort_by_key(|(index, _)| *index);
    let each: io::Result<Vec<Vec<Cell>>> = done.into_iter().map(|(_, cells)| cells).collect();
    Ok(each?.into_iter().flatten().collect())
}

fn run_peer(
    root: &Path,
    ours: &Ours,
    peer: &RealPeer,
    data: &Path,
    cannot: &Cannot,
) -> io::Result<Vec<Cell>> {
    let places = Places::install(root, peer, data)?;
    let ways = peer.ways.iter();
    ways.map(|way| run_way(ours, peer, way, &places, cannot))
        .collect()
}

fn run_way(
    ours: &Ours,
    peer: &RealPeer,
    way: &Way,
    places: &Places,
    cannot: &Cannot,
) -> io::Result<Cell> {
    let mode = match (&way.role, way.over) {
        (Role::Client, Transport::HttpSse) => "sse",
        _ => "auto",
    };
    let pair = Pair {
        peer: peer.name,
        side: way.role.side(),
        transport: way.over,
        mode,
        checks: CHECKS,
        version: None,
    };
    // Ends when the cell has been run.
    let _serving;
    let mut client = match &way.role {
        Role::Client => {
            let target = match way.over {
                Transport::Stdio => ours.server.words(&["--transport", "stdio"]),
                Transport::Http | Transport::HttpSse => {
                    let mut server = ours.server.command(&["--transport", "http"]);
                    let serving = Serving::start(&mut server)?;
                    let url = serving.url().to_owned();
                    _serving = serving;
                    vec![url]
                }
            };
            let mut client = command(&places.words(way.start, 0));
            client.arg(mode).args(target);
            client
        }
        Role::Server(case) => {
            let target = match way.over.path() {
                None => places.words(way.start, 0),
                Some(path) => {
                    let port = free_port()?;
                    let mut server = command(&places.words(way.start, port));
                    _serving = Serving::start_at(&mut server, port)?;
                    vec![format!("http://127.0.0.1:{port}{path}")]
                }
            };
            let mut client = ours.client.command(&[mode]);
            client.args(case.words(places)).args(target);
            client
        }
    };
    pair.run(&mut client, cannot)
}

impl Transport {
    /// Where most servers have it.
    fn path(self) -> Option<&'static str> {
        match self {
            Self::Stdio => None,
            Self::Http => Some("/mcp"),
            Self::HttpSse => Some("/sse"),
        }
    }
}

impl Role {
    fn side(&self) -> Side {
        match self {
            Self::Client => Side::Client,
            Self::Server(_) => Side::Server,
        }
    }
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// A port that nothing listens at, for servers that cannot say which one they were given. It is none of those that the
/// operating system gives out itself: seconds pass until the server listens, and somebody else would have it by then.
fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Two runs at a time begin at different ports.
    let offset = (std::process::id() % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = FIRST_PORT + (offset + next) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other("no port is free"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Most of the time goes into starting interpreters and waiting for them.
const WORKERS: usize = 3;
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once_and_not_by_the_operating_system() {
        let (first, second) = (free_port().unwrap(), free_port().unwrap());

        assert_ne!(first, second);
        assert!((FIRST_PORT..FIRST_PORT + PORTS).contains(&first));
    }
}
