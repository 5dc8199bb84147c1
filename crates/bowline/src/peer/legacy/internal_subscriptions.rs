//! [`LegacySubscriptions`], the internal `subscriptions/listen` requests of a server for its legacy client.
//!
//! ```text
//! Opening ──acknowledged──▶ Open ──error──▶ Waiting ──back-off over──▶ Opening
//!    └──error, or not in time: `resources/subscribe` fails
//! ```
//!
//! There is one for the lists and one for each resource, so that the responder is not told again of the other resources
//! when one is added. After a gap the client gets every notification that it may have missed.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::task::{self, Waker};
use std::time::Duration;

use bowline_core::era::{Caller, InputMechanism, Request, Seal, convert_notification, seal};
use bowline_core::mux::InFlightId;
use bowline_core::{Notification, Outcome, shortened};
use bowline_types::{
    ErrorCode, Json, Method, NotificationMethod, PromptListChangedNotification,
    ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams, RpcError, SubscribeRequest, SubscriptionFilter,
    SubscriptionsAcknowledgedNotification, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams, ToolListChangedNotification,
};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::restore_log_level;
use crate::backoff::Backoff;
use crate::exchange::{
    Channel, ConnectionState, Context, NotificationSink, Responder, run_internal,
};
use crate::limits::{Account, Charge, ChargeKind, Limit};
use crate::peer::{LISTEN, Peer, PeerState};
use crate::signal::Signal;
use crate::sync::Mutex;

/// The internal subscriptions of a server for its legacy client; on a client, the task that restores the log level.
#[derive(Default)]
pub(in crate::peer) struct LegacySubscriptions {
    tasks: JoinSet<()>,
    by_uri: BTreeMap<String, Handle>,
    lists: Option<AbortHandle>,
}

/// An internal subscription to a resource, and the requests that wait for it. Dropping it ends both.
struct Handle {
    task: AbortHandle,
    subscribing: Arc<Subscribing>,
    _charge: Charge,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
        // Not left to the task: the responder may hold a `Context`, and with it the requests.
        self.subscribing.settle(&Err(subscription_ended()));
    }
}

impl LegacySubscriptions {
    /// Subscribes to a resource. The request is answered when the responder has acknowledged it or failed.
    pub(in crate::peer) fn subscribe(
        &mut self,
        peer: &Peer,
        caller: Arc<Caller>,
        responder: Arc<dyn Responder>,
        uri: String,
        id: InFlightId,
        charge: Charge,
    ) {
        let answer = PendingAnswer {
            peer: peer.clone(),
            id: Some(id),
        };
        if let Some(existing) = self.by_uri.get(&uri) {
            return existing.subscribing.wait(answer);
        }
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(vec![uri.clone()]);
        let subscribing = Arc::new(Subscribing::default());
        subscribing.wait(answer);
        let subscription = InternalSubscription {
            peer: peer.clone(),
            caller,
            responder,
            filter,
            subscribing: subscribing.clone(),
            is_after_gap: false,
        };
        let task = self.start(subscription);
        let handle = Handle {
            task,
            subscribing,
            _charge: charge,
        };
        self.by_uri.insert(uri, handle);
    }

    pub(in crate::peer) fn subscribe_lists(
        &mut self,
        peer: &Peer,
        caller: Arc<Caller>,
        responder: Arc<dyn Responder>,
        is_after_gap: bool,
    ) {
        // A second `initialize` may have another version; without this, the client would get each notification twice.
        if let Some(earlier) = self.lists.take() {
            earlier.abort();
            while self.tasks.try_join_next().is_some() {}
        }
        let mut filter = SubscriptionFilter::default();
        filter.tools_list_changed = Some(true);
        filter.prompts_list_changed = Some(true);
        filter.resources_list_changed = Some(true);
        let subscription = InternalSubscription {
            peer: peer.clone(),
            caller,
            responder,
            filter,
            subscribing: Arc::default(),
            is_after_gap,
        };
        self.lists = Some(self.start(subscription));
    }

    /// On a client: restores the log level after a reset of the server.
    pub(in crate::peer) fn restore_log_level(&mut self, peer: &Peer) {
        while self.tasks.try_join_next().is_some() {}
        // A running task sees `must_restore` and `level_version` and sends the level once more.
        let is_restoring =
            |state: &mut PeerState| std::mem::replace(&mut state.legacy.is_restoring, true);
        if !peer.with(is_restoring) {
            self.tasks.spawn(restore_log_level(peer.clone()));
        }
    }

    /// Charges one more subscription of a peer, whose caller has `caller_bytes`. Nothing is charged if `uri` is
    /// subscribed already. Forgets subscriptions that failed.
    ///
    /// # Errors
    ///
    /// If the peer has too many subscriptions, or their URIs are too long.
    pub(in crate::peer) fn charge(
        &mut self,
        uri: &str,
        account: &Arc<Account>,
        caller_bytes: usize,
    ) -> Result<Charge, RpcError> {
        self.by_uri.retain(|_, own| !own.subscribing.has_failed());
        while self.tasks.try_join_next().is_some() {}
        if self.by_uri.contains_key(uri) {
            return Ok(account.empty_charge(ChargeKind::Kept));
        }
        let max = account.limits().peer_subscriptions;
        if self.by_uri.len() >= max {
            let refusal = account.counters().refuse(Limit::PeerSubscriptions, max);
            return Err(refusal.into());
        }
        let subscribed: usize = self.by_uri.keys().map(|own| subscribed_bytes(own)).sum();
        if subscribed + subscribed_bytes(uri) > MAX_SUBSCRIBED_BYTES {
            account.counters().refuse(Limit::PeerSubscriptions, max);
            return Err(RpcError::invalid_params(format_args!(
                "the URIs of all subscriptions exceed {MAX_SUBSCRIBED_BYTES} bytes"
            )));
        }
        let bytes = PER_SUBSCRIPTION + URI_COPIES * uri.len() + caller_bytes;
        Ok(account.charge_kept(bytes)?)
    }

    pub(in crate::peer) fn unsubscribe(&mut self, uri: &str) {
        drop(self.by_uri.remove(uri));
        while self.tasks.try_join_next().is_some() {}
    }

    pub(in crate::peer) fn clear(&mut self) {
        self.by_uri.clear();
        self.tasks.abort_all();
    }

    fn start(&mut self, subscription: InternalSubscription) -> AbortHandle {
        let mut keeping = Box::pin(subscription.keep_open());
        // Polled once here, so that no change is missed that follows what the client sent. The task polls it again and
        // registers its own waker.
        let first = Future::poll(
            keeping.as_mut(),
            &mut task::Context::from_waker(Waker::noop()),
        );
        self.tasks.spawn(async move {
            if first.is_pending() {
                keeping.await;
            }
        })
    }
}

/// The requests `resources/subscribe` of one resource, which wait for the first acknowledgement.
#[derive(Default)]
struct Subscribing(Mutex<SubscribingState>);

enum SubscribingState {
    Waiting(Vec<PendingAnswer>),
    Subscribed,
    Failed,
}

impl Default for SubscribingState {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

impl Subscribing {
    /// Answers a request now, or when it is known whether the responder acknowledges the subscription.
    fn wait(&self, answer: PendingAnswer) {
        let mut state = self.0.lock();
        match &mut *state {
            SubscribingState::Waiting(waiting) => waiting.push(answer),
            SubscribingState::Subscribed => {
                drop(state);
                answer.send(Ok(Json::empty_object()));
            }
            SubscribingState::Failed => drop(state),
        }
    }

    /// Answers the requests that wait. Has an effect once.
    fn settle(&self, outcome: &Outcome) {
        let settled = match outcome {
            Ok(_) => SubscribingState::Subscribed,
            Err(_) => SubscribingState::Failed,
        };
        let mut state = self.0.lock();
        if !matches!(*state, SubscribingState::Waiting(_)) {
            return;
        }
        let waiting = std::mem::replace(&mut *state, settled);
        drop(state);
        if let SubscribingState::Waiting(waiting) = waiting {
            let answers = waiting.into_iter();
            answers.for_each(|answer| answer.send(outcome.clone()));
        }
    }

    fn is_waited_for(&self) -> bool {
        matches!(&*self.0.lock(), SubscribingState::Waiting(waiting) if !waiting.is_empty())
    }

    fn has_failed(&self) -> bool {
        matches!(*self.0.lock(), SubscribingState::Failed)
    }
}

/// A request that is not answered yet. Dropping it answers it with an error: the client must not wait for ever.
struct PendingAnswer {
    peer: Peer,
    id: Option<InFlightId>,
}

impl PendingAnswer {
    fn send(mut self, outcome: Outcome) {
        if let Some(id) = self.id.take() {
            self.peer.respond(&id, outcome);
        }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.peer.respond(&id, Err(subscription_ended()));
        }
    }
}

fn subscription_ended() -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, "the subscription has ended")
}

/// One internal subscription.
struct InternalSubscription {
    peer: Peer,
    caller: Arc<Caller>,
    responder: Arc<dyn Responder>,
    filter: SubscriptionFilter,
    subscribing: Arc<Subscribing>,
    /// Whether the client may have missed notifications before it was first opened.
    is_after_gap: bool,
}

impl InternalSubscription {
    /// Keeps the subscription open until it ends with a result, or fails before a request for it was answered.
    async fn keep_open(self) {
        let mut attempts = 0;
        loop {
            let opened_at = Instant::now();
            let (outcome, was_acknowledged) = self.run(attempts > 0 || self.is_after_gap).await;
            let error = match outcome {
                Ok(_) if was_acknowledged => return,
                Ok(_) => RpcError::new(
                    ErrorCode::INTERNAL_ERROR,
                    "the subscription ended without an acknowledgement",
                ),
                Err(error) => error,
            };
            if self.subscribing.is_waited_for() {
                let form = Seal::new(self.caller.dialect, SubscribeRequest::NAME);
                let refused = seal(&form, &Json::empty_object(), Err(error));
                return self.subscribing.settle(&refused);
            }
            if error.code == ErrorCode::METHOD_NOT_FOUND {
                return; // the responder has no subscriptions
            }
            let lasted = opened_at.elapsed() > BACKOFF.max;
            attempts = if lasted { 1 } else { attempts + 1 };
            tracing::debug!(error = %shortened(&error), attempts, "opening an internal subscription again");
            tokio::time::sleep(BACKOFF.delay(attempts)).await;
        }
    }

    /// Opens the subscription, and returns its outcome and whether it was acknowledged.
    async fn run(&self, is_after_gap: bool) -> (Outcome, bool) {
        let params = SubscriptionsListenRequestParams::new(self.filter.clone());
        let params = Json::encode(&params).unwrap_or_else(|_| Json::empty_object());
        let request = Request::new(LISTEN, params, self.caller.clone());
        let sink = Arc::new(UnsolicitedSink {
            peer: self.peer.clone(),
            caller: self.caller.clone(),
            subscribing: self.subscribing.clone(),
            acknowledged: Signal::default(),
            is_after_gap,
        });
        let cx = Context::new("unsolicited".into(), &request, sink.clone());
        let running = run_internal(self.responder.clone(), request, cx);
        let not_acknowledged = async {
            tokio::select! {
                biased;
                () = sink.acknowledged.wait() => pending().await,
                () = tokio::time::sleep(ACKNOWLEDGE_TIMEOUT) => {}
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = running => outcome,
            () = not_acknowledged => {
                let why = "the subscription was not acknowledged in time";
                Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why))
            }
        };
        (outcome, sink.acknowledged.is_raised())
    }
}

/// The [`NotificationSink`] of an internal subscription: sends unsolicited notifications.
struct UnsolicitedSink {
    peer: Peer,
    caller: Arc<Caller>,
    subscribing: Arc<Subscribing>,
    acknowledged: Signal,
    /// Whether the client may have missed notifications before the subscription was opened.
    is_after_gap: bool,
}

impl UnsolicitedSink {
    fn send(&self, notification: Notification) {
        if let Some(notification) = convert_notification(self.caller.dialect, notification) {
            self.peer.notify(notification);
        }
    }

    fn acknowledge(&self, notification: &Notification) {
        // Here and not in the task of the subscription, so that the answer comes before the first notification.
        self.subscribing.settle(&Ok(Json::empty_object()));
        if self.is_after_gap && !self.acknowledged.is_raised() {
            let params = notification.params.as_ref();
            let params = params.and_then(|params| {
                let params = params.decode::<SubscriptionsAcknowledgedNotificationParams>();
                params.ok()
            });
            let filter = params.map(|params| params.notifications);
            all_notifications(filter.unwrap_or_default()).for_each(|missed| self.send(missed));
        }
        self.acknowledged.raise();
    }
}

impl NotificationSink for UnsolicitedSink {
    fn notify(&self, notification: Notification) {
        match &*notification.method {
            SubscriptionsAcknowledgedNotification::NAME => self.acknowledge(&notification),
            _ => self.send(notification),
        }
    }

    /// Requests that belong to no request of the client: the client is initialized, and connected.
    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        let has_requests = self.caller.dialect.input_mechanism == InputMechanism::Request;
        has_requests.then(|| Arc::new(self.peer.clone()) as _)
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        Some(&self.peer.shared.connection_state)
    }
}

/// Returns every notification that a filter has.
fn all_notifications(filter: SubscriptionFilter) -> impl Iterator<Item = Notification> {
    let lists = [
        (filter.tools_list_changed, ToolListChangedNotification::NAME),
        (
            filter.prompts_list_changed,
            PromptListChangedNotification::NAME,
        ),
        (
            filter.resources_list_changed,
            ResourceListChangedNotification::NAME,
        ),
    ];
    let lists = lists.into_iter().filter(|(has, _)| *has == Some(true));
    let lists = lists.map(|(_, method)| Notification::new(method, None));
    let uris = filter.resource_subscriptions.into_iter().flatten();
    lists.chain(uris.map(|uri| {
        let params = Json::encode(&ResourceUpdatedNotificationParams::new(uri));
        Notification::new(ResourceUpdatedNotification::NAME, params.ok())
    }))
}

/// Returns how many bytes a URI counts toward [`MAX_SUBSCRIBED_BYTES`].
pub(crate) fn subscribed_bytes(uri: &str) -> usize {
    PER_URI + uri.len()
}

/// The limit of the URIs that one legacy client is subscribed to: 256 KiB, and [`PER_URI`] for each of 1,024.
pub(crate) const MAX_SUBSCRIBED_BYTES: usize = 256 * 1024 + 1024 * PER_URI;
/// Estimated bytes of a URI in a set, without the text.
const PER_URI: usize = 64;
/// Estimated bytes of an internal subscription, without the URI.
const PER_SUBSCRIPTION: usize = 2048;
/// How often a URI is kept: here, in the filter, in the params, in what the responder listens for, in a session record.
const URI_COPIES: usize = 5;
/// How long a responder may take to acknowledge a subscription.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(30),
};
