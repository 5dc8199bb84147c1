//! An application's subscription to a resource, and a check of the notifications it receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bowline::client::{Change, ChangeFilter, Subscription};
use bowline::{Client, Error, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::handlers::sleep_ms;
use crate::network::Network;
use crate::scene::{Fault, ScheduleConfig};
use crate::schedule_log::{AllowedFailure, ScheduleLog};

/// A task that subscribes to one resource, and again where the subscription may be lost. Dropping the listener drops
/// the subscription.
pub(crate) struct UpdateListener {
    state: Arc<ListenerState>,
    task: AbortHandle,
}

struct ListenerState {
    party: char,
    tag: String,
    uri: &'static str,
    config: ScheduleConfig,
    log: ScheduleLog,
    network: Network,
    /// The number of `subscribe` calls.
    attempts: AtomicUsize,
    is_subscribed: AtomicBool,
    /// Whether a fault since the last `subscribe` may have lost notifications silently.
    is_disrupted: AtomicBool,
    /// The number of changes announced since it subscribed, and the number of the last one.
    expected: AtomicUsize,
    last_expected: AtomicU64,
    /// The number of notifications received when the last change was announced.
    received_before: AtomicUsize,
    received: AtomicUsize,
    /// The number of notifications that the server had written for it when it subscribed.
    written_before: AtomicUsize,
    /// Whether it has stopped reading notifications.
    is_paused: watch::Sender<bool>,
}

impl UpdateListener {
    pub(crate) fn start(
        client: Client,
        (party, tag): (char, String),
        uri: &'static str,
        config: ScheduleConfig,
        log: &ScheduleLog,
        network: &Network,
    ) -> Self {
        log.note(format_args!("{tag} subscribes to {uri}"));
        let state = Arc::new(ListenerState {
            party,
            tag,
            uri,
            config,
            log: log.clone(),
            network: network.clone(),
            attempts: AtomicUsize::new(0),
            is_subscribed: AtomicBool::new(false),
            is_disrupted: AtomicBool::new(false),
            expected: AtomicUsize::new(0),
            last_expected: AtomicU64::new(0),
            received_before: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            written_before: AtomicUsize::new(0),
            is_paused: watch::Sender::new(false),
        });
        let task = tokio::spawn(run_listener(client, state.clone())).abort_handle();
        Self { state, task }
    }

    /// Expects a notification of the `number`th change, if it is subscribed to this resource.
    pub(crate) fn expect_change(&self, uri: &str, number: u64) {
        if self.state.uri == uri && self.state.is_subscribed.load(Relaxed) {
            self.state.expected.fetch_add(1, Relaxed);
            self.state.last_expected.store(number, Relaxed);
            self.state.received_before.store(self.received(), Relaxed);
        }
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        let tag = &self.state.tag;
        self.state
            .log
            .note(format_args!("{tag} reads: {}", !is_paused));
        self.state.is_paused.send_replace(is_paused);
    }

    /// Excuses lost notifications of changes before the next `subscribe`.
    pub(crate) fn disrupt(&self) {
        self.state.is_disrupted.store(true, Relaxed);
    }

    pub(crate) fn party(&self) -> char {
        self.state.party
    }

    pub(crate) fn tag(&self) -> &str {
        &self.state.tag
    }

    pub(crate) fn received(&self) -> usize {
        self.state.received.load(Relaxed)
    }

    /// Checks that after silently lost notifications it has received another one or had to subscribe again.
    pub(crate) fn check_caught_up(&self) {
        let state = &*self.state;
        let (expected, before) = (&state.expected, &state.received_before);
        let is_behind = expected.load(Relaxed) > 0 && self.received() <= before.load(Relaxed);
        if is_behind && state.is_subscribed.load(Relaxed) {
            let details = format!("{} received nothing since the last change", state.tag);
            state.log.violation(NOTIFIED_OR_LAGGED, details);
        }
    }

    /// Checks that it has received all expected notifications.
    pub(crate) fn check(&self) {
        let state = &*self.state;
        let is_excused = state.is_disrupted.load(Relaxed) || !state.is_subscribed.load(Relaxed);
        // A legacy client may hold a subscription that the server has lost, and a half-open connection delivers nothing
        // until it breaks.
        let may_be_lost =
            !state.config.dialect.is_modern() && state.log.allows(AllowedFailure::SubscriptionLost);
        let may_be_disconnected = state.log.allows(AllowedFailure::ConnectionLost);
        if is_excused || may_be_lost || may_be_disconnected {
            return;
        }
        let expected = state.expected.load(Relaxed);
        let received = state.received.load(Relaxed);
        let updates = state.network.updates(state.party, &state.key());
        let written = updates.count - state.written_before.load(Relaxed).min(updates.count);
        // A server may coalesce a burst of changes into one notification that follows the last of them. Every
        // notification that it wrote must arrive.
        let is_coalesced = state.config.fault == Fault::Burst
            && received >= written
            && updates.last_change >= state.last_expected.load(Relaxed);
        if received < expected && !is_coalesced {
            let details = format!(
                "{} received {received} of {expected} notifications; the server wrote {written}, the last after change \
                 {}, where {} was the last",
                state.tag,
                updates.last_change,
                state.last_expected.load(Relaxed),
            );
            state.log.violation(NOTIFIED_OR_LAGGED, details);
        }
    }
}

impl Drop for UpdateListener {
    fn drop(&mut self) {
        self.state
            .log
            .note(format_args!("{} is dropped", self.state.tag));
        self.task.abort();
    }
}

impl ListenerState {
    /// The key of its notifications in [`Network::updates`].
    fn key(&self) -> String {
        if self.config.dialect.is_modern() {
            format!("{}.{}", self.tag, self.attempts.load(Relaxed))
        } else {
            self.uri.to_owned()
        }
    }

    async fn subscribe(&self, client: &Client) -> Result<Subscription> {
        self.attempts.fetch_add(1, Relaxed);
        let subscribing = client.subscribe(ChangeFilter::new().resource(self.uri));
        let subscription = match self.config.dialect.is_modern() {
            true => subscribing.id(self.key()).await?,
            false => subscribing.await?,
        };
        self.log.note(format_args!("{} is subscribed", self.tag));
        self.expected.store(0, Relaxed);
        self.received.store(0, Relaxed);
        let written = self.network.updates(self.party, &self.key()).count;
        self.written_before.store(written, Relaxed);
        self.is_disrupted.store(false, Relaxed);
        self.is_subscribed.store(true, Relaxed);
        Ok(subscription)
    }

    /// Receives changes until the subscription ends, and returns its error, if any.
    async fn receive(&self, changes: &mut Subscription) -> Option<Error> {
        let Self { tag, uri, log, .. } = self;
        let mut is_paused = self.is_paused.subscribe();
        loop {
            if is_paused.wait_for(|is_paused| !is_paused).await.is_err() {
                return None;
            }
            match changes.next().await {
                Ok(Some(Change::Resource(changed))) if changed == *uri => {
                    log.note(format_args!("{tag} receives {changed}"));
                    self.received.fetch_add(1, Relaxed);
                }
                // The application has to read everything again.
                Ok(Some(Change::Missed)) if log.allows(AllowedFailure::SubscriptionLost) => {
                    self.is_disrupted.store(true, Relaxed);
                }
                Ok(Some(other)) => {
                    let details = format!("{tag} received {other:?}");
                    log.violation("a listener receives only changes of its resource", details);
                }
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    /// Returns whether the schedule allows a subscription to end with this error.
    fn may_end(&self, error: Option<&Error>) -> bool {
        let log = &self.log;
        let failures: &[AllowedFailure] = match error {
            Some(Error::Lagged) => &[AllowedFailure::Lag],
            Some(Error::Timeout { .. }) => {
                &[AllowedFailure::Timeout, AllowedFailure::SubscriptionLost]
            }
            Some(Error::Transport { .. } | Error::Closed) => &[
                AllowedFailure::ConnectionLost,
                AllowedFailure::LostBeforeHandler,
                AllowedFailure::SubscriptionLost,
            ],
            _ => &[AllowedFailure::SubscriptionLost],
        };
        failures.iter().any(|failure| log.allows(*failure))
    }
}

async fn run_listener(client: Client, state: Arc<ListenerState>) {
    let ListenerState { tag, log, .. } = &*state;
    for attempt in 0..MAX_ATTEMPTS {
        let error = match state.subscribe(&client).await {
            Ok(mut changes) => state.receive(&mut changes).await,
            Err(error) => Some(error),
        };
        state.is_subscribed.store(false, Relaxed);
        let reason = error
            .as_ref()
            .map_or_else(|| "end of stream".to_owned(), Error::to_string);
        log.note(format_args!("the subscription of {tag} ends: {reason}"));
        if log.allows_any_failure() {
            return;
        }
        if !state.may_end(error.as_ref()) {
            let details = format!("{tag}: {reason}");
            return log.violation("a subscription lasts until it is dropped", details);
        }
        // Back off, as an application should.
        sleep_ms(100 << attempt.min(6)).await;
    }
}

const NOTIFIED_OR_LAGGED: &str =
    "a listener receives every update notification or learns that it lagged";
const MAX_ATTEMPTS: usize = 30;
