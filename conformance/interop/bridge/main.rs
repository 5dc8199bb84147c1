//! A bridge for end-to-end checks: in front of any server, whose version is negotiated or given.
//!
//! ```text
//! interop-bridge --transport stdio legacy http://127.0.0.1:3000/mcp
//! interop-bridge --transport http --port 3001 2026 python3 server.py --transport stdio
//! ```
//!
//! The front serves every version. The mode, `auto`, `2026`, `legacy` or `legacy:VERSION`, selects the version behind
//! the bridge, so that a server of both eras can be used as one of either. With `--connections 1` after the transport,
//! all calls of a client are made over one connection, so that a command is started once.

#![allow(clippy::print_stdout, reason = "over HTTP stdout carries no messages")]

#[path = "../client/mode.rs"]
mod mode;

use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

use bowline::Client;
use bowline::client::ClientBuilder;
use bowline::wire::Command;
use bowline_bridge::{Bridge, Target};
use mode::Mode;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let arguments = parse(&words)?;
    let mut bridge = Bridge::builder(target(arguments.mode, arguments.server));
    if let Some(max) = arguments.connections {
        bridge = bridge.max_connections_each(max);
    }
    let bridge = bridge.build();
    match arguments.front {
        Front::Stdio => bridge.wire().serve_stdio().await?,
        Front::Http { port } => {
            let bound = bridge.http().bind(("127.0.0.1", port)).await?;
            println!("READY http://{}/mcp", bound.local_addr());
            bound.serve().await?;
        }
    }
    Ok(())
}

/// Returns a target that connects to a URL, or starts a command, in this mode.
fn target(mode: Mode, server: Vec<String>) -> Target {
    let is_url = is_url(&server);
    let name = server.join(" ");
    let connect = move |_: &_| {
        let builder = match &server[..] {
            [url] if is_url => Client::connect(url),
            [program, arguments @ ..] => Client::spawn(command(program, arguments)),
            [] => unreachable!("`parse` requires a server"),
        };
        Ok(with_mode(builder, &mode))
    };
    match is_url {
        true => Target::new(name, connect).stateless(),
        false => Target::new(name, connect),
    }
}

fn command(program: &str, arguments: &[String]) -> Command {
    let command = Command::new(program).args(arguments);
    command.inherit_env().grace(GRACE)
}

fn with_mode(builder: ClientBuilder, mode: &Mode) -> ClientBuilder {
    match mode.version() {
        Some(version) => builder.protocol_version(version),
        None => builder,
    }
}

fn is_url(server: &[String]) -> bool {
    matches!(server, [url] if url.starts_with("http://"))
}

#[derive(Debug, PartialEq)]
struct Arguments {
    front: Front,
    /// The most connections with the same capabilities; the default of the bridge if `None`.
    connections: Option<usize>,
    mode: Mode,
    /// A URL, or a command and its arguments.
    server: Vec<String>,
}

/// The transport of the clients.
#[derive(Debug, PartialEq)]
enum Front {
    Stdio,
    Http { port: u16 },
}

/// Parses the command line. Without a port, a free one is used.
fn parse(words: &[String]) -> Result<Arguments, String> {
    let (front, rest) = match words {
        [option, name, rest @ ..] if option == "--transport" => (name.as_str(), rest),
        _ => return Err(USAGE.to_owned()),
    };
    let (port, rest) = number_after("--port", rest)?;
    let (connections, rest) = number_after("--connections", rest)?;
    let front = match front {
        "stdio" => Front::Stdio,
        "http" => Front::Http {
            port: port.unwrap_or_default(),
        },
        _ => return Err(USAGE.to_owned()),
    };
    match rest {
        [mode, server @ ..] if !server.is_empty() => Ok(Arguments {
            front,
            connections,
            mode: Mode::parse(mode)?,
            server: server.to_vec(),
        }),
        _ => Err(USAGE.to_owned()),
    }
}

/// Returns the number after an option, if the option comes first, and the remaining words.
fn number_after<'a, T: FromStr>(
    option: &str,
    words: &'a [String],
) -> Result<(Option<T>, &'a [String]), String> {
    match words {
        [word, number, rest @ ..] if word == option => {
            let number = number.parse().map_err(|_| USAGE.to_owned())?;
            Ok((Some(number), rest))
        }
        words => Ok((None, words)),
    }
}

/// The time in which a server must exit after its input was closed.
const GRACE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: interop-bridge --transport stdio|http [--port PORT] [--connections N] \
    auto|2026|legacy[:VERSION] URL | COMMAND…";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn the_front_the_version_behind_and_the_server_are_given() {
        let arguments =
            parsed("--transport http --port 3000 --connections 1 legacy server -f").unwrap();

        assert_eq!(arguments.front, Front::Http { port: 3000 });
        assert_eq!(arguments.connections, Some(1));
        assert_eq!(arguments.mode.version(), Some("2025-11-25"));
        assert_eq!(arguments.server, ["server", "-f"]);
        let front = parsed("--transport stdio auto http://host/mcp")
            .unwrap()
            .front;
        assert_eq!(front, Front::Stdio);
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for line in [
            "",
            "--transport stdio auto",
            "--transport pigeon auto server",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        assert!(parsed("--transport stdio never server").is_err());
    }
}
