//! Emulation of `subscriptions/listen` on wires of the legacy era, and restoring state after a `WireEvent::Reset`.
//!
//! On a client, `subscriptions/listen` is emulated by `resources/subscribe`, unsolicited notifications and
//! `resources/unsubscribe`. On a server, an internal `subscriptions/listen` per legacy client yields the notifications
//! that the client is sent. The code of clients and servers is the same in both eras.

mod internal_subscriptions;
pub(super) use internal_subscriptions::LegacySubscriptions;
#[cfg(feature = "http-server")]
pub(crate) use internal_subscriptions::{MAX_SUBSCRIBED_BYTES, subscribed_bytes};

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::json::Params;
use bowline_core::mux::{CallId, CallOptions};
use bowline_core::{Notification, restrict_filter, shortened};
use bowline_types::{
    Json, Method, NotificationMethod, PromptListChangedNotification, RequestId,
    ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams, ServerCapabilities, SetLevelRequest, SubscribeRequest,
    SubscribeRequestParams, SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams,
    ToolListChangedNotification, UnsubscribeRequest, UnsubscribeRequestParams,
};

use super::notification_hub::{ListenerEvent, NotificationListener};
use super::{LISTEN, Peer, PeerState};
use crate::Error;
use crate::exchange::{Exchange, ExchangeEvent, PollExchange};

/// Returns whether `request` does not exist in its caller's era.
pub(super) fn must_emulate(request: &Request) -> bool {
    request.method == LISTEN && !request.caller.dialect.is_modern()
}

/// Emulates `subscriptions/listen` on a legacy wire.
pub(super) fn listen(peer: &Peer, request: &Request) -> Exchange {
    let mut filter = match request.params.decode::<SubscriptionsListenRequestParams>() {
        Ok(params) => params.notifications,
        Err(error) => {
            return Exchange::failed(Error::misuse(format!(
                "invalid subscription filter: {error}"
            )));
        }
    };
    filter.other.clear(); // members of extensions, which the legacy era does not have
    if let Some(declared) = peer.with(|state| state.legacy.declared.clone()) {
        filter = restrict_filter(filter, &declared);
    }
    if let Some(error) = peer.notification_hub().lost() {
        return Exchange::failed(stream_lost(error));
    }
    let listener = peer.notification_hub().listen();
    let mut listen = EmulatedListen {
        peer: peer.clone(),
        caller: request.caller.clone(),
        listener,
        pending: VecDeque::new(),
        held: Vec::new(),
        acknowledged: false,
        filter,
        paused: Duration::ZERO,
    };
    listen.subscribe();
    Exchange::new(listen)
}

/// Stores the capabilities in the result of the handshake with a legacy server.
pub(super) fn remember_capabilities(peer: &Peer, introduction: &Json) {
    let capabilities = Params::from(introduction.clone()).member("capabilities");
    let capabilities = capabilities.ok().flatten();
    let declared = capabilities.and_then(|declared| declared.decode::<ServerCapabilities>().ok());
    peer.with(|state| state.legacy.declared = declared.map(Arc::new));
}

/// Stores a `logging/setLevel` request, to repeat it after a reset of the server.
pub(super) fn remember_log_level(peer: &Peer, request: &Request) {
    if request.method == SetLevelRequest::NAME && !request.caller.dialect.is_modern() {
        let mut request = request.clone();
        request.progress_token = None; // the token may be in use when the request is repeated
        let replaced = peer.with(|state| state.legacy.set_level(request));
        drop(replaced); // not under the lock
    }
}

/// Sends `logging/setLevel` again after a reset of the server, and retries until the server answers: the application
/// does not wait for it, so an error could not be reported.
///
/// Sends one request at a time, because two could arrive out of order.
async fn restore_log_level(peer: Peer) {
    let mut backoff = MIN_BACKOFF;
    while let Some((request, version)) = peer.with(|state| state.legacy.level_to_restore()) {
        match peer.call(&request, deadline_options()).1.answer().await {
            Err(Error::Transport { .. } | Error::Timeout { .. }) => {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                continue;
            }
            Err(error) => {
                tracing::debug!(error = %shortened(&error), "failed to restore the log level")
            }
            Ok(_) => {}
        }
        peer.with(|state| state.legacy.restored(version));
    }
}

fn stream_lost(error: Arc<Error>) -> Error {
    Error::Transport {
        what: "notifications of the server are no longer received".into(),
        source: Some(Box::new(error)),
    }
}

/// An emulated `subscriptions/listen`.
struct EmulatedListen {
    peer: Peer,
    caller: Arc<Caller>,
    listener: NotificationListener,
    filter: SubscriptionFilter,
    /// Pending `resources/subscribe` requests.
    pending: VecDeque<PendingSubscribe>,
    /// The resources that this subscription holds; the last holder of a resource unsubscribes.
    held: Vec<String>,
    acknowledged: bool,
    /// The longest pause of an answered request; see [`PollExchange::paused`].
    paused: Duration,
}

/// A pending `resources/subscribe`.
struct PendingSubscribe {
    uri: String,
    call: Option<CallId>,
    exchange: Exchange,
    /// The generation in which it was sent. An answer from before a reset does not confirm the subscription.
    generation: u64,
}

impl EmulatedListen {
    fn subscribe(&mut self) {
        for uri in self
            .filter
            .resource_subscriptions
            .clone()
            .unwrap_or_default()
        {
            if self.held.contains(&uri) {
                continue;
            }
            if self.peer.with(|state| state.legacy.hold(&uri)) {
                self.send_subscribe(uri.clone());
            }
            self.held.push(uri);
        }
    }

    /// Subscribes again after a reset of the server, except to resources that another holder has confirmed since.
    fn subscribe_again(&mut self) {
        for uri in self.held.clone() {
            if !self.peer.with(|state| state.legacy.is_confirmed(&uri)) {
                self.send_subscribe(uri);
            }
        }
    }

    fn send_subscribe(&mut self, uri: String) {
        let params = SubscribeRequestParams::new(uri.clone());
        let request = self.request::<SubscribeRequest>(&params);
        // Not cancelled when dropped: after a cancel it is unknown whether the server subscribed. `Drop` unsubscribes.
        let options = CallOptions {
            cancel_on_abandon: false,
            ..deadline_options()
        };
        let generation = self.peer.with(|state| state.legacy.generation);
        let (call, exchange) = self.peer.call(&request, options);
        self.pending.push_back(PendingSubscribe {
            uri,
            call,
            exchange,
            generation,
        });
    }

    fn request<M: Method>(&self, params: &M::Params) -> Request {
        let params = Json::encode(params).unwrap_or_else(|_| Json::empty_object());
        Request::new(M::NAME, params, self.caller.clone())
    }

    /// Drops pending requests. The server may have received those that were sent, so they must be unsubscribed from.
    fn stop_subscribing(&mut self) {
        for PendingSubscribe {
            uri,
            call,
            exchange,
            ..
        } in self.pending.drain(..)
        {
            self.peer.with(|state| {
                if call.is_some_and(|call| !state.mux.is_unsent(call)) {
                    state.legacy.set_may_be_subscribed(&uri);
                }
            });
            drop(exchange);
        }
    }

    fn acknowledgement(&self) -> Notification {
        let params = SubscriptionsAcknowledgedNotificationParams::new(self.filter.clone());
        Notification::new(
            SubscriptionsAcknowledgedNotification::NAME,
            Json::encode(&params).ok(),
        )
    }

    fn matches_filter(&self, notification: &Notification) -> bool {
        let filter = &self.filter;
        match &*notification.method {
            ToolListChangedNotification::NAME => filter.tools_list_changed == Some(true),
            PromptListChangedNotification::NAME => filter.prompts_list_changed == Some(true),
            ResourceListChangedNotification::NAME => filter.resources_list_changed == Some(true),
            ResourceUpdatedNotification::NAME => {
                let params = notification.params.as_ref();
                params
                    .and_then(|params| params.decode::<ResourceUpdatedNotificationParams>().ok())
                    .is_some_and(|params| self.held.contains(&params.uri))
            }
            _ => false,
        }
    }
}

impl PollExchange for EmulatedListen {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        while let Some(pending) = self.pending.front_mut() {
            let ExchangeEvent::Answered(answer) = task::ready!(pending.exchange.poll_event(cx))
            else {
                continue;
            };
            self.paused = self.paused.max(pending.exchange.paused());
            let answered = self.pending.pop_front();
            if let Err(error) = answer {
                return Poll::Ready(ExchangeEvent::Answered(Err(error)));
            }
            if let Some(PendingSubscribe {
                uri, generation, ..
            }) = answered
            {
                let confirm = |state: &mut PeerState| state.legacy.confirm(&uri, generation);
                self.peer.with(confirm);
            }
        }
        if !self.acknowledged {
            self.acknowledged = true;
            return Poll::Ready(ExchangeEvent::Notification(self.acknowledgement()));
        }
        loop {
            match task::ready!(self.listener.poll_next(cx)) {
                Some(ListenerEvent::Notification(notification))
                    if self.matches_filter(&notification) =>
                {
                    return Poll::Ready(ExchangeEvent::Notification(notification));
                }
                Some(ListenerEvent::Notification(_)) => {}
                Some(ListenerEvent::Reset) => {
                    // The changes that were lost are queued behind the reset, and are yielded once resubscribed.
                    self.subscribe_again();
                    return self.poll_event(cx);
                }
                Some(ListenerEvent::Lagged) => {
                    return Poll::Ready(ExchangeEvent::Answered(Err(Error::Lagged)));
                }
                Some(ListenerEvent::Lost(error)) => {
                    return Poll::Ready(ExchangeEvent::Answered(Err(stream_lost(error))));
                }
                None => return Poll::Ready(ExchangeEvent::Answered(Err(self.peer.end_error()))),
            }
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        None
    }

    fn paused(&self) -> Duration {
        // The requests are sent together and wait for the same authorization, so that their pauses overlap.
        let pending = self.pending.iter().map(|it| it.exchange.paused());
        pending.fold(self.paused, Duration::max)
    }

    fn cancel(self: Box<Self>, _: String) {}
}

impl Drop for EmulatedListen {
    fn drop(&mut self) {
        self.stop_subscribing();
        for uri in std::mem::take(&mut self.held) {
            if self.peer.with(|state| state.legacy.release(&uri)) {
                let params = UnsubscribeRequestParams::new(uri);
                let request = self.request::<UnsubscribeRequest>(&params);
                // The answer is discarded; the deadline ends the call.
                if let Err(error) = self.peer.start(&request, deadline_options(), None) {
                    tracing::debug!(error = %shortened(&error), "failed to unsubscribe from a resource");
                }
            }
        }
    }
}

/// The state that a legacy server keeps for this wire: subscriptions and the log level.
#[derive(Debug, Default)]
pub(super) struct RestorableState {
    /// The capabilities of the server that subscriptions are limited to, once they are known.
    declared: Option<Arc<ServerCapabilities>>,
    resources: BTreeMap<String, SubscribedResource>,
    /// The last `logging/setLevel`.
    log_level: Option<Request>,
    /// Incremented when the level changes and when the server is reset.
    level_version: u64,
    /// Whether the level must be set again after a reset of the server.
    must_restore: bool,
    /// Whether a task is restoring it.
    is_restoring: bool,
    /// How often the server was reset.
    generation: u64,
}

#[derive(Debug, Default)]
struct SubscribedResource {
    holders: usize,
    /// Whether the server may have a subscription, so that the last holder must unsubscribe.
    may_be_subscribed: bool,
    /// The generation in which the server confirmed it. Until then every holder sends its own request, because another
    /// holder's request may still be withdrawn or refused.
    confirmed: Option<u64>,
}

impl RestorableState {
    /// Adds a holder. Returns whether it must send `resources/subscribe`.
    fn hold(&mut self, uri: &str) -> bool {
        let resource = self.resources.entry(uri.to_owned()).or_default();
        resource.holders += 1;
        !self.is_confirmed(uri)
    }

    fn is_confirmed(&self, uri: &str) -> bool {
        let confirmed = self
            .resources
            .get(uri)
            .and_then(|resource| resource.confirmed);
        confirmed == Some(self.generation)
    }

    /// Records that the server may have received a `resources/subscribe` that was dropped.
    fn set_may_be_subscribed(&mut self, uri: &str) {
        if let Some(resource) = self.resources.get_mut(uri) {
            resource.may_be_subscribed = true;
        }
    }

    /// Records that the server confirmed a request that was sent in this generation.
    fn confirm(&mut self, uri: &str, generation: u64) {
        if let Some(resource) = self.resources.get_mut(uri) {
            resource.may_be_subscribed = true;
            resource.confirmed = Some(generation);
        }
    }

    /// Removes a holder. Returns whether it was the last one and must unsubscribe.
    fn release(&mut self, uri: &str) -> bool {
        let Some(resource) = self.resources.get_mut(uri) else {
            return false;
        };
        resource.holders -= 1;
        if resource.holders > 0 {
            return false;
        }
        let must_unsubscribe = resource.may_be_subscribed;
        self.resources.remove(uri);
        must_unsubscribe
    }

    /// Stores a new level. Returns the previous request.
    fn set_level(&mut self, request: Request) -> Option<Request> {
        self.level_version += 1;
        self.log_level.replace(request)
    }

    /// Returns the request that restores the level, if that is needed. If it returns `None`, the restoring task ends.
    fn level_to_restore(&mut self) -> Option<(Request, u64)> {
        let request = self.log_level.clone().filter(|_| self.must_restore);
        self.is_restoring = request.is_some();
        Some((request?, self.level_version))
    }

    /// Records the server's answer. The level must be restored again if it changed or the server was reset since.
    fn restored(&mut self, version: u64) {
        self.must_restore = self.level_version != version;
    }

    /// Records a reset of the server.
    pub(super) fn reset(&mut self) {
        self.generation += 1;
        self.level_version += 1;
        self.must_restore = true;
        for resource in self.resources.values_mut() {
            resource.may_be_subscribed = false;
        }
    }

    pub(super) fn skip_capability_check(&mut self) {
        self.declared = None;
    }

    /// Returns the resources that have a holder.
    pub(super) fn subscribed_resources(&self) -> Vec<String> {
        self.resources.keys().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

fn deadline_options() -> CallOptions {
    CallOptions {
        timeout: Some(Duration::from_secs(30)),
        ..CallOptions::default()
    }
}

const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
