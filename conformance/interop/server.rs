//! A server that clients written with other SDKs can check end to end; what it offers is the fixture's, and the
//! tool `protocol_version`, for clients that do not say which version they have agreed upon.
//!
//! ```text
//! interop-server --transport stdio
//! interop-server --transport http --port 3000
//! ```
//!
//! Over HTTP everything is served at one URL, which is printed once it can be reached: both eras, and the two
//! endpoints of the first version.

#![allow(
    clippy::print_stdout,
    reason = "over HTTP nothing else is said on stdout"
)]

use std::error::Error;
use std::sync::Arc;

use bowline::exchange::Caller;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline_cli::fixture::Fixture;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Fixture::new().server().tool(protocol_version);
    match parse(std::env::args().skip(1))? {
        Transport::Stdio => server.serve_stdio().await?,
        Transport::Http { port } => {
            let service = server.http().legacy(Legacy::sessions().http_sse());
            let bound = service.bind(("127.0.0.1", port)).await?;
            println!("READY http://{}/mcp", bound.addr());
            bound.serve().await?;
        }
    }
    Ok(())
}

/// Returns the protocol version of this very call.
#[tool(read_only)]
async fn protocol_version(caller: Arc<Caller>) -> &'static str {
    caller.dialect.version
}

/// How clients come in.
#[derive(Debug, PartialEq)]
enum Transport {
    Stdio,
    Http { port: u16 },
}

/// Reads the command line. Without a port, any that is free will do.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Transport, String> {
    let (mut transport, mut port) = (None, 0);
    while let Some(word) = words.next() {
        let value = words.next();
        match (word.as_str(), value.as_deref()) {
            ("--transport", Some("stdio" | "http")) => transport = value,
            ("--port", Some(number)) => {
                port = number
                    .parse()
                    .map_err(|_| format!("`{number}` is not a port"))?;
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    match transport.as_deref() {
        Some("stdio") => Ok(Transport::Stdio),
        Some(_) => Ok(Transport::Http { port }),
        None => Err(USAGE.to_owned()),
    }
}

const USAGE: &str = "usage: interop-server --transport stdio|http [--port PORT]";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Transport, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_options_come_in_any_order() {
        let over_http = Ok(Transport::Http { port: 3000 });

        assert_eq!(parsed("--transport http --port 3000"), over_http);
        assert_eq!(parsed("--port 3000 --transport http"), over_http);
        assert_eq!(parsed("--transport stdio"), Ok(Transport::Stdio));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["", "--transport", "--transport pigeon", "--port many"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
