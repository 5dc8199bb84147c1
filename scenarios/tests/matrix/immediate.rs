//! Calls abandoned right after they were started: every request that was sent is cancelled exactly once, and no other.

use std::collections::BTreeSet;

use bowline::testing::eventually;

use crate::cell_env::CellEnv;
use crate::column::{AbandonSignal, Column, Transport};

/// Every wire, in every version.
pub(crate) fn columns() -> impl Iterator<Item = Column> {
    Column::all().filter(|column| {
        let transport = column.transport;
        !matches!(transport, Transport::InProcess | Transport::Stateless)
    })
}

/// Starts calls and drops each after a growing number of polls, repeatedly.
pub(crate) async fn every_sent_request_is_cancelled_exactly_once(calls: usize, column: Column) {
    let env = CellEnv::open(column).await;
    for nth in 0..calls {
        let mut call = env.start("slow");
        for _ in 0..nth % MAX_POLLS {
            tokio::select! {
                biased;
                reply = &mut call => panic!("the call ended: {reply:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(call);
    }

    let observer = env.observer.clone();
    let ended = eventually(|| RequestLog::of(column, &observer.frames()).is_balanced()).await;
    let log = RequestLog::of(column, &observer.frames());
    assert!(ended, "sent and cancelled requests differ: {log:?}");
    assert!(log.repeated.is_empty(), "{:?}", log.repeated);
    // Over legacy HTTP a cancel is a request of its own. The client sends it after the request or 100 ms later, and the
    // server keeps one that overtakes its request in a machine that stalls.
    if column.signal() != AbandonSignal::CancelAndEnd {
        assert!(log.overtaken.is_empty(), "{:?}", log.overtaken);
    }
    let all_dropped = || observer.counts().started == observer.counts().dropped;
    assert!(eventually(all_dropped).await, "{:?}", observer.counts());
    env.end_ignoring_frames().await;
}

/// The requests and cancels that the server received, by request id.
#[derive(Debug, Default)]
struct RequestLog {
    requests: BTreeSet<String>,
    abandoned: BTreeSet<String>,
    /// Requests cancelled before they arrived.
    overtaken: Vec<String>,
    /// Requests cancelled twice.
    repeated: Vec<String>,
}

impl RequestLog {
    fn of(column: Column, frames: &[String]) -> Self {
        let mut log = Self::default();
        for frame in frames {
            let Some(received) = frame.strip_prefix("→ ") else {
                continue;
            };
            if let Some(id) = received.strip_suffix(" tools/call slow") {
                log.requests.insert(id.to_owned());
            } else if let Some(id) = abandoned_request(column, received) {
                if !log.requests.contains(&id) {
                    log.overtaken.push(id.clone());
                }
                if !log.abandoned.insert(id.clone()) {
                    log.repeated.push(id);
                }
            }
        }
        log
    }

    fn is_balanced(&self) -> bool {
        self.requests == self.abandoned
    }
}

/// The id of the request that a frame cancels or closes.
fn abandoned_request(column: Column, frame: &str) -> Option<String> {
    match column.signal() {
        AbandonSignal::Close => frame.strip_prefix("closes ").map(str::to_owned),
        _ => {
            let (id, _) = frame.strip_prefix("cancel ")?.split_once(": ")?;
            Some(id.to_owned())
        }
    }
}

/// The maximum number of polls before a call is dropped.
const MAX_POLLS: usize = 12;
