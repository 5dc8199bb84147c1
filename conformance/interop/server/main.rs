//! A server for end-to-end checks by clients of other SDKs: the interop fixture, the tasks fixture, and the tool
//! `protocol_version` for clients that do not report the negotiated version.
//!
//! ```text
//! interop-server --transport stdio
//! interop-server --transport http --port 3000
//! interop-server --transport http --cluster redis://127.0.0.1:6379 --state /tmp/counters
//! ```
//!
//! Over HTTP one URL serves both eras and HTTP+SSE; it is printed once the server accepts connections.

#![allow(clippy::print_stdout, reason = "over HTTP stdout carries no messages")]

mod replica;
mod tasks;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use bowline::exchange::Caller;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline_cli::fixture::Fixture;
use replica::ReplicaOptions;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Fixture::new().server().tool(protocol_version);
    match parse(std::env::args().skip(1))? {
        Transport::Stdio => tasks::register(server).serve_stdio().await?,
        Transport::Http { port, replica } => {
            let server = match replica {
                Some(options) => options.apply(server).await?,
                None => tasks::register(server),
            };
            let service = server.http().legacy(Legacy::sessions().http_sse());
            let bound = service.bind(("127.0.0.1", port)).await?;
            println!("READY http://{}/mcp", bound.local_addr());
            bound.serve_until_signal().await?;
        }
    }
    Ok(())
}

/// Returns the protocol version of this call.
#[tool(read_only)]
async fn protocol_version(caller: Arc<Caller>) -> &'static str {
    caller.dialect.version
}

/// The transport of the server.
#[derive(Debug, PartialEq)]
enum Transport {
    Stdio,
    Http {
        port: u16,
        replica: Option<ReplicaOptions>,
    },
}

/// Parses the command line. Without a port, a free one is used.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Transport, String> {
    let (mut transport, mut port) = (None, 0);
    let (mut engine, mut state) = (None, None);
    while let Some(word) = words.next() {
        let value = words.next();
        match (word.as_str(), value.as_deref()) {
            ("--transport", Some("stdio" | "http")) => transport = value,
            ("--port", Some(number)) => {
                port = number
                    .parse()
                    .map_err(|_| format!("`{number}` is not a port"))?;
            }
            ("--cluster", Some(_)) => engine = value,
            ("--state", Some(_)) => state = value.map(PathBuf::from),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let replica = match (engine, state) {
        (Some(engine), Some(state)) => Some(ReplicaOptions { engine, state }),
        (None, None) => None,
        _ => return Err(USAGE.to_owned()),
    };
    match transport.as_deref() {
        Some("stdio") if replica.is_none() => Ok(Transport::Stdio),
        Some("http") => Ok(Transport::Http { port, replica }),
        _ => Err(USAGE.to_owned()),
    }
}

const USAGE: &str =
    "usage: interop-server --transport stdio|http [--port PORT] [--cluster URL --state FOLDER]";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Transport, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_options_come_in_any_order() {
        let over_http = Ok(Transport::Http {
            port: 3000,
            replica: None,
        });

        assert_eq!(parsed("--transport http --port 3000"), over_http);
        assert_eq!(parsed("--port 3000 --transport http"), over_http);
        assert_eq!(parsed("--transport stdio"), Ok(Transport::Stdio));
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for line in [
            "",
            "--transport",
            "--transport pigeon",
            "--port many",
            "--transport http --cluster redis://localhost",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
