//! [`Control`]: a port at which tests stop and start an engine.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::server::EngineServer;

/// Listens for the lines `stop NAME` and `start NAME`, and answers each with `ok` or an error. Stops the engines when it
/// is dropped.
#[derive(Debug)]
pub(super) struct Control {
    address: String,
    servers: Arc<Mutex<Vec<EngineServer>>>,
}

impl Control {
    pub(super) fn start(servers: Vec<EngineServer>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let servers = Arc::new(Mutex::new(servers));
        let controlled = servers.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A test that ends in the middle of a line does not end the others.
                let _ = handle(&stream, &mut lock(&controlled));
            }
        });
        Ok(Self { address, servers })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The thread is not joined, so the engines would outlive this program.
        lock(&self.servers).clear();
    }
}

fn lock(servers: &Mutex<Vec<EngineServer>>) -> MutexGuard<'_, Vec<EngineServer>> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle(stream: &TcpStream, servers: &mut [EngineServer]) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let outcome = match perform(line.trim(), servers) {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("failed: {error}"),
    };
    let mut stream = stream;
    writeln!(stream, "{outcome}")
}

fn perform(line: &str, servers: &mut [EngineServer]) -> io::Result<()> {
    let (verb, name) = line.split_once(' ').unwrap_or_default();
    let server = servers
        .iter_mut()
        .find(|server| server.engine().name() == name);
    let server = server.ok_or_else(|| io::Error::other(format!("no engine `{name}`")))?;
    match verb {
        "stop" => server.stop(),
        "start" => server.start_again(),
        _ => Err(io::Error::other(format!("unknown verb `{verb}`"))),
    }
}
