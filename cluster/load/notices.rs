//! Subscribers and the changes that are announced to them.
//!
//! Each change has a URI of its own, so that a notice is attributed to it. A notice counts as lost if neither it nor the
//! news of a gap comes in time: the end of the subscription, or [`Change::Missed`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bowline::Client;
use bowline::client::{Change, ChangeFilter};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clients::LIMIT;
use crate::tally::Tally;

/// What a subscriber has received.
#[derive(Debug, Default)]
struct Received {
    is_subscribed: bool,
    uris: BTreeSet<String>,
    gaps: u64,
}

/// Starts a subscriber, and a client that announces changes to it.
pub(crate) fn start_notices(
    tasks: &mut JoinSet<()>,
    (subscriber, announcer): (Client, Client),
    name: &str,
    every: Duration,
    tally: &Arc<Tally>,
) {
    let uris: Vec<String> = (0..URIS)
        .map(|nth| format!("fixture://item/{name}-{nth}"))
        .collect();
    let received = Arc::new(watch::Sender::new(Received::default()));
    tasks.spawn(subscribe(
        subscriber,
        uris.clone(),
        received.clone(),
        tally.clone(),
    ));
    let (receiver, tally) = (received.subscribe(), tally.clone());
    tasks.spawn(async move {
        let mut pace = tokio::time::interval(every);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for uri in uris.iter().cycle() {
            pace.tick().await;
            announce(&announcer, uri, &received, receiver.clone(), &tally).await;
        }
    });
}

/// Subscribes, again whenever the subscription ends.
async fn subscribe(
    client: Client,
    uris: Vec<String>,
    received: Arc<watch::Sender<Received>>,
    tally: Arc<Tally>,
) {
    let mut pace = tokio::time::interval(RETRY_EVERY);
    loop {
        pace.tick().await;
        let filter = uris.iter().fold(ChangeFilter::new(), |filter, uri| {
            filter.resource(uri.clone())
        });
        let mut changes = match client.subscribe(filter).await {
            Ok(changes) => changes,
            Err(error) => {
                tally.error(&error);
                continue;
            }
        };
        received.send_modify(|received| received.is_subscribed = true);
        while let Ok(Some(change)) = changes.next().await {
            received.send_modify(|received| match change {
                Change::Resource(uri) => {
                    received.uris.insert(uri);
                }
                Change::Missed => received.gaps += 1,
                _ => {}
            });
        }
        received.send_modify(|received| {
            received.is_subscribed = false;
            received.gaps += 1;
        });
    }
}

/// Announces one change, and counts what becomes of its notice.
async fn announce(
    announcer: &Client,
    uri: &str,
    received: &watch::Sender<Received>,
    mut receiver: watch::Receiver<Received>,
    tally: &Tally,
) {
    let subscribed = receiver.wait_for(|received| received.is_subscribed);
    let Ok(Ok(gaps)) = timeout(LIMIT, subscribed)
        .await
        .map(|it| it.map(|it| it.gaps))
    else {
        return;
    };
    received.send_modify(|received| {
        received.uris.remove(uri);
    });
    let touched = announcer
        .call_tool("touch", json!({"uri": uri}))
        .timeout(LIMIT);
    // Without an answer it is not known whether there was a change.
    if let Err(error) = touched.await {
        tally.error(&error);
        return;
    }
    let arrived = receiver.wait_for(|it| it.uris.contains(uri) || it.gaps > gaps);
    let arrived = timeout(NOTICE_LIMIT, arrived).await;
    let is_delivered = arrived.map(|it| it.map(|it| it.uris.contains(uri)));
    tally.change(|counts| {
        counts.notices += 1;
        match is_delivered {
            Ok(Ok(true)) => counts.delivered += 1,
            Ok(_) => counts.missed += 1,
            Err(_) => counts.lost_notices += 1,
        }
    });
}

const URIS: usize = 16;
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// Longer than any of the faults, and than the reconnects after it.
const NOTICE_LIMIT: Duration = Duration::from_secs(40);
