//! Calls that are let go of as soon as they are started: whatever left is cancelled, and nothing else.

use std::collections::BTreeSet;

use crate::column::{Column, Signal, Transport};
use crate::holdings::eventually;
use crate::tools::Host;
use crate::world::World;

/// Every wire, in every version.
pub(crate) fn columns() -> impl Iterator<Item = Column> {
    Column::all().filter(|column| {
        let transport = column.transport;
        !matches!(transport, Transport::InProcess | Transport::Forgetful)
    })
}

/// Starts calls and lets go of each a little later than of the one before, several times over.
pub(crate) async fn whatever_left_is_cancelled_and_nothing_else(calls: usize, column: Column) {
    let world = World::open(column, Host::that_never_answers()).await;
    for nth in 0..calls {
        let mut call = world.start("slow");
        for _ in 0..nth % MOST_STEPS {
            tokio::select! {
                biased;
                reply = &mut call => panic!("the call ended: {reply:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(call);
    }

    let seen = world.seen.clone();
    let ended = eventually(|| Told::of(column, &seen.frames()).is_even()).await;
    let told = Told::of(column, &seen.frames());
    assert!(ended, "not all that left was let go of, or more: {told:?}");
    assert!(told.overtaken.is_empty(), "{:?}", told.overtaken);
    let all_dropped = || seen.tally().started == seen.tally().dropped;
    assert!(eventually(all_dropped).await, "{:?}", seen.tally());
    world.end_whatever_passed().await;
}

/// What a server was told, by the ids of requests.
#[derive(Debug, Default)]
struct Told {
    requests: BTreeSet<String>,
    let_go: BTreeSet<String>,
    /// Let go of before they came, or twice.
    overtaken: Vec<String>,
}

impl Told {
    fn of(column: Column, frames: &[String]) -> Self {
        let mut told = Self::default();
        for frame in frames {
            let Some(came) = frame.strip_prefix("→ ") else {
                continue;
            };
            if let Some(id) = came.strip_suffix(" tools/call slow") {
                told.requests.insert(id.to_owned());
            } else if let Some(id) = let_go_of(column, came)
                && !(told.requests.contains(&id) && told.let_go.insert(id.clone()))
            {
                told.overtaken.push(id);
            }
        }
        told
    }

    fn is_even(&self) -> bool {
        self.requests == self.let_go
    }
}

/// The request that a frame lets go of.
fn let_go_of(column: Column, frame: &str) -> Option<String> {
    match column.signal() {
        Signal::Close => frame.strip_prefix("closes ").map(str::to_owned),
        _ => {
            let frame: serde_json::Value = serde_json::from_str(frame).ok()?;
            Some(frame["params"].get("requestId")?.to_string())
        }
    }
}

/// How many steps a call may take before it is let go of.
const MOST_STEPS: usize = 12;
