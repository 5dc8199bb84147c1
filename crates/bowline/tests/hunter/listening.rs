//! A subscription as an application holds it, and what it must hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bowline::Client;
use bowline::client::{Change, Changes};
use tokio::task::AbortHandle;

use crate::ledger::Ledger;

/// Somebody who listens to changes of one thing. Dropping it ends that.
pub(crate) struct Listening {
    state: Arc<State>,
    task: AbortHandle,
}

struct State {
    tag: String,
    uri: &'static str,
    ledger: Ledger,
    listens: AtomicBool,
    /// How many changes were announced since it listens.
    owed: AtomicUsize,
    heard: AtomicUsize,
}

impl Listening {
    pub(crate) fn begin(client: Client, tag: String, uri: &'static str, ledger: &Ledger) -> Self {
        ledger.note(format_args!("{tag} wants to hear of {uri}"));
        let state = Arc::new(State {
            tag,
            uri,
            ledger: ledger.clone(),
            listens: AtomicBool::new(false),
            owed: AtomicUsize::new(0),
            heard: AtomicUsize::new(0),
        });
        let task = tokio::spawn(listen(client, state.clone())).abort_handle();
        Self { state, task }
    }

    /// A thing changes, of which it must hear if it listens to that by now.
    pub(crate) fn is_owed(&self, uri: &str) {
        if self.state.uri == uri && self.state.listens.load(Relaxed) {
            self.state.owed.fetch_add(1, Relaxed);
        }
    }

    /// Sees to it that it has heard of all it had to.
    pub(crate) fn check(&self) {
        let State {
            tag,
            owed,
            heard,
            ledger,
            ..
        } = &*self.state;
        let (owed, heard) = (owed.load(Relaxed), heard.load(Relaxed));
        if heard < owed && !ledger.is_wrecked() {
            let how = format!("{tag} heard of {heard} changes out of {owed}");
            ledger.broken("who listens hears of every change", how);
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.state
            .ledger
            .note(format_args!("{} is let go of", self.state.tag));
        self.task.abort();
    }
}

async fn listen(client: Client, state: Arc<State>) {
    let State {
        tag, uri, ledger, ..
    } = &*state;
    let ended = |how: String| {
        ledger.note(format_args!("{tag} hears no more: {how}"));
        if !ledger.is_wrecked() {
            ledger.broken(
                "a subscription lasts until it is let go of",
                format_args!("{tag}: {how}"),
            );
        }
    };
    let mut changes = match client.subscribe(Changes::new().resource(*uri)).await {
        Ok(changes) => changes,
        Err(error) => return ended(error.to_string()),
    };
    ledger.note(format_args!("{tag} listens"));
    state.listens.store(true, Relaxed);
    loop {
        match changes.next().await {
            Ok(Some(Change::Resource(changed))) if changed == *uri => {
                ledger.note(format_args!("{tag} hears of {changed}"));
                state.heard.fetch_add(1, Relaxed);
            }
            Ok(Some(other)) => {
                let how = format!("{tag} heard {other:?}");
                ledger.broken("nobody hears what it did not ask for", how);
            }
            Ok(None) => return ended("the end".to_owned()),
            Err(error) => return ended(error.to_string()),
        }
    }
}
