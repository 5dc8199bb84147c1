//! A subscription as an application holds it, and what it must hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bowline::client::{Change, Changes, Subscription};
use bowline::{Client, Error, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::ledger::{Ledger, Permit};
use crate::network::Network;
use crate::scene::{Column, Trouble};
use crate::work::pass;

/// Somebody who listens to changes of one thing, and subscribes again where a subscription may be lost.
/// Dropping it ends that.
pub(crate) struct Listening {
    state: Arc<State>,
    task: AbortHandle,
}

struct State {
    party: char,
    tag: String,
    uri: &'static str,
    column: Column,
    ledger: Ledger,
    network: Network,
    /// How often it has subscribed.
    attempts: AtomicUsize,
    listens: AtomicBool,
    /// Whether something happened since it subscribed that may have cost it notifications without a word.
    is_disrupted: AtomicBool,
    /// How many changes were announced since it listens, and the number of the last one.
    owed: AtomicUsize,
    last_owed: AtomicU64,
    /// How many it had heard of when the last one was announced.
    heard_before: AtomicUsize,
    heard: AtomicUsize,
    /// How many notifications the server had written for it when it began to listen.
    written_before: AtomicUsize,
    /// Whether it reads nothing for now.
    naps: watch::Sender<bool>,
}

impl Listening {
    pub(crate) fn begin(
        client: Client,
        (party, tag): (char, String),
        uri: &'static str,
        column: Column,
        ledger: &Ledger,
        network: &Network,
    ) -> Self {
        ledger.note(format_args!("{tag} wants to hear of {uri}"));
        let state = Arc::new(State {
            party,
            tag,
            uri,
            column,
            ledger: ledger.clone(),
            network: network.clone(),
            attempts: AtomicUsize::new(0),
            listens: AtomicBool::new(false),
            is_disrupted: AtomicBool::new(false),
            owed: AtomicUsize::new(0),
            last_owed: AtomicU64::new(0),
            heard_before: AtomicUsize::new(0),
            heard: AtomicUsize::new(0),
            written_before: AtomicUsize::new(0),
            naps: watch::Sender::new(false),
        });
        let task = tokio::spawn(listen(client, state.clone())).abort_handle();
        Self { state, task }
    }

    /// The `number`th change is about to be announced, of which it must hear if it listens to that by now.
    pub(crate) fn is_owed(&self, uri: &str, number: u64) {
        if self.state.uri == uri && self.state.listens.load(Relaxed) {
            self.state.owed.fetch_add(1, Relaxed);
            self.state.last_owed.store(number, Relaxed);
            self.state.heard_before.store(self.heard(), Relaxed);
        }
    }

    /// Stops reading, or reads again.
    pub(crate) fn nap(&self, naps: bool) {
        let tag = &self.state.tag;
        self.state
            .ledger
            .note(format_args!("{tag} reads: {}", !naps));
        self.state.naps.send_replace(naps);
    }

    /// Something happened that may cost it notifications without a word. It must hear of what comes later.
    pub(crate) fn disrupt(&self) {
        self.state.is_disrupted.store(true, Relaxed);
    }

    pub(crate) fn party(&self) -> char {
        self.state.party
    }

    pub(crate) fn tag(&self) -> &str {
        &self.state.tag
    }

    pub(crate) fn heard(&self) -> usize {
        self.state.heard.load(Relaxed)
    }

    /// Sees to it that what it may have missed without a word was made up for: it was told of the thing since, or had
    /// to subscribe again.
    pub(crate) fn check_that_it_caught_up(&self) {
        let state = &*self.state;
        let (owed, before) = (&state.owed, &state.heard_before);
        let is_behind = owed.load(Relaxed) > 0 && self.heard() <= before.load(Relaxed);
        if is_behind && state.listens.load(Relaxed) {
            let how = format!("{} heard nothing since the last change", state.tag);
            let law = "a listener hears every notice or is told that it lagged";
            state.ledger.broken(law, how);
        }
    }

    /// Sees to it that it has heard of all it had to.
    pub(crate) fn check(&self) {
        let state = &*self.state;
        let is_excused = state.is_disrupted.load(Relaxed) || !state.listens.load(Relaxed);
        // A legacy subscription may be one that its client has had for a while and that the server forgot; on a path
        // that is dead nothing is heard before it breaks.
        let is_forgotten =
            !state.column.dialect.is_modern() && state.ledger.permits(Permit::SubscriptionLost);
        let is_cut_off = state.ledger.permits(Permit::ConnectionLost);
        if is_excused || is_forgotten || is_cut_off {
            return;
        }
        let (owed, heard) = (state.owed.load(Relaxed), state.heard.load(Relaxed));
        let notices = state.network.notices(state.party, &state.key());
        let written = notices.count - state.written_before.load(Relaxed).min(notices.count);
        // A server may say once that something changed which did so many times at once, if it does so after the
        // last time. What it did say must arrive.
        let is_summed_up = state.column.trouble == Trouble::Burst
            && heard >= written
            && notices.stamp >= state.last_owed.load(Relaxed);
        if heard < owed && !is_summed_up {
            let how = format!(
                "{} heard of {heard} changes out of {owed}; the server wrote {written}, the last after change {} \
                 where {} was the last",
                state.tag,
                notices.stamp,
                state.last_owed.load(Relaxed),
            );
            let law = "a listener hears every notice or is told that it lagged";
            state.ledger.broken(law, how);
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

impl State {
    /// What the server's notifications for it are counted by.
    fn key(&self) -> String {
        if self.column.dialect.is_modern() {
            format!("{}.{}", self.tag, self.attempts.load(Relaxed))
        } else {
            self.uri.to_owned()
        }
    }

    async fn subscribe(&self, client: &Client) -> Result<Subscription> {
        self.attempts.fetch_add(1, Relaxed);
        let subscribing = client.subscribe(Changes::new().resource(self.uri));
        let subscription = match self.column.dialect.is_modern() {
            true => subscribing.id(self.key()).await?,
            false => subscribing.await?,
        };
        self.ledger.note(format_args!("{} listens", self.tag));
        self.owed.store(0, Relaxed);
        self.heard.store(0, Relaxed);
        let written = self.network.notices(self.party, &self.key()).count;
        self.written_before.store(written, Relaxed);
        self.is_disrupted.store(false, Relaxed);
        self.listens.store(true, Relaxed);
        Ok(subscription)
    }

    /// Hears changes until the subscription ends, and says how it did.
    async fn hear(&self, changes: &mut Subscription) -> Option<Error> {
        let Self {
            tag, uri, ledger, ..
        } = self;
        let mut naps = self.naps.subscribe();
        loop {
            if naps.wait_for(|naps| !naps).await.is_err() {
                return None;
            }
            match changes.next().await {
                Ok(Some(Change::Resource(changed))) if changed == *uri => {
                    ledger.note(format_args!("{tag} hears of {changed}"));
                    self.heard.fetch_add(1, Relaxed);
                }
                // It knows now that it has to look at everything again.
                Ok(Some(Change::Missed)) if ledger.permits(Permit::SubscriptionLost) => {
                    self.is_disrupted.store(true, Relaxed);
                }
                Ok(Some(other)) => {
                    let how = format!("{tag} heard {other:?}");
                    ledger.broken("nobody hears what it did not ask for", how);
                }
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    /// Whether a subscription may end this way.
    fn may_end(&self, error: Option<&Error>) -> bool {
        let ledger = &self.ledger;
        let permits: &[Permit] = match error {
            Some(Error::Lagged) => &[Permit::Lag],
            Some(Error::Timeout { .. }) => &[Permit::TimeOut, Permit::SubscriptionLost],
            Some(Error::Transport { .. } | Error::Closed) => &[
                Permit::ConnectionLost,
                Permit::LostUnbegun,
                Permit::SubscriptionLost,
            ],
            _ => &[Permit::SubscriptionLost],
        };
        permits.iter().any(|permit| ledger.permits(*permit))
    }
}

async fn listen(client: Client, state: Arc<State>) {
    let State { tag, ledger, .. } = &*state;
    for attempt in 0..MOST_ATTEMPTS {
        let ended = match state.subscribe(&client).await {
            Ok(mut changes) => state.hear(&mut changes).await,
            Err(error) => Some(error),
        };
        state.listens.store(false, Relaxed);
        let how = ended
            .as_ref()
            .map_or_else(|| "the end".to_owned(), Error::to_string);
        ledger.note(format_args!("{tag} hears no more: {how}"));
        if ledger.is_wrecked() {
            return;
        }
        if !state.may_end(ended.as_ref()) {
            let how = format!("{tag}: {how}");
            return ledger.broken("a subscription lasts until it is let go of", how);
        }
        // As an application does that does not want to be a burden.
        pass(100 << attempt.min(6)).await;
    }
}

/// How often a listener subscribes before it despairs.
const MOST_ATTEMPTS: usize = 30;
