//! The bridge as the middle of a cell.

use std::time::Duration;

use bowline::Client;
use bowline::wire::Lines;
use bowline_bridge::{Bridge, Target};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use crate::endpoint::{Endpoint, Wire};
use crate::middle::{FrontAddress, Joined, Middle, UpstreamAddress};

/// A bridge.
#[derive(Debug)]
pub(crate) struct Bridged;

impl Middle for Bridged {
    fn joins(&self, _front: Endpoint, _upstream: Endpoint) -> bool {
        true
    }

    async fn join(
        &self,
        front: Endpoint,
        _upstream: Endpoint,
        to: UpstreamAddress,
    ) -> Result<Joined, String> {
        let bridge = Bridge::new(target(to));
        if front.wire == Wire::Stdio {
            let (client, ours) = tokio::io::duplex(64 * 1024);
            let serving = tokio::spawn(bridge.wire().serve(lines(ours)));
            return Ok(joined(FrontAddress::Pipe(client), serving));
        }
        let bound = bridge.http().bind("127.0.0.1:0").await;
        let bound = bound.map_err(|error| error.to_string())?;
        let path = match front.wire {
            Wire::HttpSse => "/sse",
            Wire::Http | Wire::Stdio => "/mcp",
        };
        let url = format!("http://{}{path}", bound.local_addr());
        Ok(joined(FrontAddress::Url(url), tokio::spawn(bound.serve())))
    }
}

fn target(to: UpstreamAddress) -> Target {
    match to {
        UpstreamAddress::Spawn(spawn) => {
            Target::new("raw", move |_| Ok(Client::from_wire(lines(spawn()))))
        }
        UpstreamAddress::Url(url) => {
            let connect = move |_: &_| Ok(Client::connect(&url).probe_timeout(PROBE_TIMEOUT));
            Target::new("raw", connect).stateless()
        }
    }
}

fn lines(pipe: DuplexStream) -> Lines {
    let (read, write) = tokio::io::split(pipe);
    Lines::new(read, write)
}

fn joined(front: FrontAddress, serving: JoinHandle<bowline::Result<()>>) -> Joined {
    let _guard = Some(Box::new(AbortOnDrop(serving)) as Box<_>);
    Joined { front, _guard }
}

struct AbortOnDrop(JoinHandle<bowline::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Longer than the probe takes on a busy machine: one that is given up would be one more closed request in the check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
