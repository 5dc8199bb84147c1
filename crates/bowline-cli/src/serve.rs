//! `bowline serve-demo`: the fixture, for whoever wants to call it.

use bowline::{Result, wire};
use tokio::sync::watch;

use crate::counters::{Counters, Tally};
use crate::fixture::Fixture;
use crate::heard::{Event, Heard, Tap};
use crate::options::Serve;

pub(crate) async fn serve(how: Serve) -> Result<()> {
    let fixture = Fixture::new();
    let server = fixture.server();
    match how {
        Serve::Stdio { tell: false } => server.serve_stdio().await,
        Serve::Stdio { tell: true } => {
            let heard = Heard::default();
            // Before the first request can be answered.
            let changes = fixture.counters().watch();
            let wire = Tap::new(wire::stdio()?, &heard);
            tokio::select! {
                served = server.serve(wire) => served,
                () = tell(changes, &heard) => Ok(()),
            }
        }
        Serve::Http { port } => {
            let bound = server.http().bind(("127.0.0.1", port)).await?;
            println!("READY http://{}/mcp", bound.addr());
            bound.serve().await
        }
    }
}

/// Writes every change of the counters to stderr, and before it what was heard until then.
async fn tell(mut changes: watch::Receiver<Tally>, heard: &Heard) {
    while changes.changed().await.is_ok() {
        let tally = *changes.borrow_and_update();
        for words in heard.take() {
            eprintln!("{HEARD}{words}");
        }
        if let Ok(tally) = serde_json::to_string(&tally) {
            eprintln!("{TALLY}{tally}");
        }
    }
}

/// Takes in a line that another process [told](tell).
pub(crate) fn listen(line: &str, counters: &Counters, heard: &Heard) {
    if let Some(words) = line.strip_prefix(HEARD) {
        heard.push(Event::Told(words.to_owned()));
    } else if let Some(Ok(tally)) = line.strip_prefix(TALLY).map(serde_json::from_str::<Tally>) {
        counters.set(tally);
    }
}

const HEARD: &str = "heard ";
const TALLY: &str = "tally ";
