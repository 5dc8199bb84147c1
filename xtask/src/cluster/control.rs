//! [`Control`]: a port at which tests stop and start an engine.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::server::{EngineServer, TlsFiles};

/// Listens for lines, and answers each with `ok` or an error. Stops the engines when it is dropped.
///
/// | line | |
/// |---|---|
/// | `stop NAME`, `start NAME` | kills an engine, and starts it again |
/// | `tls NAME FOLDER` | starts one that requires TLS, with `certificate.pem` and `key.pem` of the folder, instead of the last; answers `ok PORT` |
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

fn handle(stream: &TcpStream, servers: &mut Vec<EngineServer>) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let outcome = match perform(line.trim(), servers) {
        Ok(None) => "ok".to_owned(),
        Ok(Some(port)) => format!("ok {port}"),
        Err(error) => format!("failed: {error}"),
    };
    let mut stream = stream;
    writeln!(stream, "{outcome}")
}

/// Returns the port of a server that was added.
fn perform(line: &str, servers: &mut Vec<EngineServer>) -> io::Result<Option<u16>> {
    let mut words = line.splitn(3, ' ');
    let (verb, name) = (words.next().unwrap_or_default(), words.next());
    let name = name.unwrap_or_default();
    if verb == "tls" {
        // One that was started before would use the same folder.
        servers.retain(|server| server.engine().name() != name || !server.requires_tls());
    }
    let server = servers
        .iter_mut()
        .find(|server| server.engine().name() == name && !server.requires_tls());
    let server = server.ok_or_else(|| io::Error::other(format!("no engine `{name}`")))?;
    match verb {
        "stop" => server.stop().map(|()| None),
        "start" => server.start_again().map(|()| None),
        "tls" => {
            let folder = Path::new(words.next().unwrap_or_default());
            let added = server.start_with_tls(&TlsFiles::in_folder(folder))?;
            let port = added.port();
            servers.push(added);
            Ok(Some(port))
        }
        _ => Err(io::Error::other(format!("unknown verb `{verb}`"))),
    }
}
