//! Dropped calls through the bridge: the time until the handler behind it is dropped.

use std::net::{Ipv4Addr, SocketAddr};

use super::running_bridge::{bowline_command, free_port, wait_until_listening};
use crate::legs::abandoned;
use crate::machine::Core;
use crate::measure::{Cell, Goal, Row, Spread};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

/// Every pair of eras, to a server over HTTP and over stdio.
pub(crate) fn drops(options: &Options) -> Vec<Row> {
    let eras: [(&str, &[&str]); 2] = [("2026-07-28", &[]), ("2025-11-25", &["--legacy"])];
    let mut rows = Vec::new();
    for (back, server_arguments) in eras {
        for transport in ["HTTP", "stdio"] {
            let bridge = StartedBridge::to(transport, server_arguments);
            for (front, client_arguments) in eras {
                let drops = bridge.drops(options, client_arguments);
                let work =
                    format!("from drop to drop, {front} over HTTP to {back} over {transport}");
                rows.push(row(work, drops));
            }
        }
    }
    rows
}

fn row(work: String, drops: Vec<f64>) -> Row {
    let cell = Cell {
        subject: Subject::Bowline.name(),
        value: Spread::of(drops.into_iter().map(|us| us / 1e3).collect()),
        ratio: None,
        pace: None,
    };
    let row = Row {
        cells: vec![cell],
        ..Row::plain(work, "ms", Some(Goal::Slowest(10.0)), &[])
    };
    row.of_bridges()
}

/// A bridge, and the server behind it.
struct StartedBridge {
    _bridge: Program,
    _server: Option<Program>,
    url: String,
}

impl StartedBridge {
    fn to(transport: &str, server_arguments: &[&str]) -> Self {
        let port = free_port().expect("a free port");
        let mut command = bowline_command(port);
        let server = match transport {
            "HTTP" => {
                let setting = ProcessSetting {
                    arguments: server_arguments,
                    ..ProcessSetting::LOAD
                };
                let (server, address) = Program::serve(Subject::Bowline, setting);
                command.arg(format!("http://{address}/mcp"));
                Some(server)
            }
            _ => {
                let server = Subject::Bowline.server();
                command.arg("--").arg(server.get_program()).arg("--stdio");
                command.args(server_arguments);
                None
            }
        };
        let mut bridge = Program::start_silent(&mut command, Core::Test);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until_listening(&mut bridge, address).expect("a bridge");
        Self {
            _bridge: bridge,
            _server: server,
            url: format!("http://{address}/mcp"),
        }
    }

    /// Returns how long each drop took, in µs.
    fn drops(&self, options: &Options, client_arguments: &[&str]) -> Vec<f64> {
        let count = if options.quick { 20 } else { 60 };
        let turns = (0..options.rounds()).flat_map(|_| {
            let mut client = Subject::Bowline.client();
            client.args(["--url", &self.url, "--settle-ms", SETTLE_MS]);
            abandoned::drops(client.args(client_arguments), count)
        });
        turns.collect()
    }
}

/// Until then a legacy response over HTTP may have no head, and the client may not cancel.
const SETTLE_MS: &str = "20";
