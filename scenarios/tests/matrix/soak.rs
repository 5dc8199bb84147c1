//! Many calls that are started and let go of: afterwards a process holds what it held before.

use serde_json::json;

use crate::column::{Answers, Column, Protocol, Transport};
use crate::frames::Frames;
use crate::holdings::memory;
use crate::tools::Host;
use crate::world::World;

/// Every transport, in the newest version of each era that has it.
pub(crate) fn columns() -> impl Iterator<Item = Column> {
    let transports = [
        Transport::InProcess,
        Transport::Memory,
        Transport::Stdio,
        Transport::Http(Protocol::Http1, Answers::Stream),
        Transport::Http(Protocol::Http2, Answers::Stream),
        Transport::TwoEndpoints(Protocol::Http1),
    ];
    transports.into_iter().flat_map(|transport| {
        let mut eras = Column::all().filter(move |column| column.transport == transport);
        let first = eras.next();
        let legacy = eras.find(|column| !column.is_modern());
        [first, legacy].into_iter().flatten()
    })
}

/// Abandons so many calls, and looks at what is left of them.
pub(crate) async fn abandon(calls: usize, column: Column) {
    let world = World::open(column, Host::that_never_answers()).await;
    let mut before = 0;
    for nth in 0..calls + WARM_UP {
        if nth == WARM_UP {
            before = memory(world.seen.process());
        }
        let slow = world.client.call_tool("slow", json!({"name": "mine"}));
        // Whoever wants to know of progress gets the head of an HTTP response at once.
        let mut call = slow.on_progress(|_| {}).start();
        world.run_into_handler(&mut call).await;
        drop(call);
        world.seen.dropped(1).await;
        world.seen.forget();
    }
    let grown = memory(world.seen.process()).saturating_sub(before);
    assert!(grown < MOST_GROWTH, "{grown} bytes more are in use");
    world.end(Frames::default()).await;
}

/// How many calls a process may learn from what it will need.
const WARM_UP: usize = 200;
const MOST_GROWTH: usize = 5 * 1024 * 1024;
