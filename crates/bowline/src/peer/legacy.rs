//! Subscriptions in the legacy era, whose wire has no `subscriptions/listen`.
//!
//! On a client, the inside request is carried out by `resources/subscribe`, unsolicited notifications
//! and `resources/unsubscribe`. On a server, what such a client should hear is found by an inside
//! `subscriptions/listen` of our own. Neither client nor server code knows.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::era::{Caller, Request, tell};
use bowline_core::mux::{CallId, CallOptions};
use bowline_core::{Notification, shortened};
use bowline_types::{
    Json, Method, Notice, PromptListChangedNotification, RequestId,
    ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams, SetLevelRequest, SubscribeRequest, SubscribeRequestParams,
    SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams,
    ToolListChangedNotification, UnsubscribeRequest, UnsubscribeRequestParams,
};
use tokio::task::JoinSet;

use super::notices::{Heard, Listener};
use super::{LISTEN, Peer, State};
use crate::Error;
use crate::exchange::{Channel, Context, Exchange, Ongoing, Outlet, Responder, Step, run};

/// Whether `request` has no counterpart on the wire of its caller's era.
pub(super) fn must_emulate(request: &Request) -> bool {
    request.method == LISTEN && !request.caller.dialect.is_modern()
}

/// Carries out an inside `subscriptions/listen` over a legacy wire.
pub(super) fn listen(peer: &Peer, request: &Request) -> Exchange {
    let filter = match request.params.decode::<SubscriptionsListenRequestParams>() {
        Ok(params) => params.notifications,
        Err(error) => return Exchange::failed(Error::misuse(format!("no valid filter: {error}"))),
    };
    if let Some(error) = peer.notices().lost() {
        return Exchange::failed(stream_lost(error));
    }
    let listener = peer.notices().listen();
    let mut listen = Listen {
        peer: peer.clone(),
        caller: request.caller.clone(),
        listener,
        subscribing: VecDeque::new(),
        held: Vec::new(),
        acknowledged: false,
        filter,
    };
    listen.subscribe();
    Exchange::new(listen)
}

/// Takes note of a log level, for the server may forget it.
pub(super) fn remember(peer: &Peer, request: &Request) {
    if request.method == SetLevelRequest::NAME && !request.caller.dialect.is_modern() {
        let mut request = request.clone();
        request.progress_token = None; // it may be in use when the request is sent again
        let replaced = peer.with(|state| state.legacy.set_level(request));
        drop(replaced); // not under the lock
    }
}

/// Sets the log level that the server has forgotten. It tries until the server has answered: nobody waits for this, so
/// that nobody could be told that it failed.
///
/// One request at a time: of two, the older might come in last.
async fn restore_log_level(peer: Peer) {
    let mut pause = FIRST_PAUSE;
    while let Some((request, version)) = peer.with(|state| state.legacy.level_to_restore()) {
        match peer.call(&request, limited()).1.answer().await {
            Err(Error::Transport { .. } | Error::Timeout { .. }) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
            Err(error) => {
                tracing::debug!(error = %shortened(&error), "failed to set the log level again")
            }
            Ok(_) => {}
        }
        peer.with(|state| state.legacy.restored(version));
    }
}

/// The notifications that may have been lost: one for each list, and one for each resource in `held`.
pub(super) fn everything_changed(held: Vec<String>) -> Vec<Notification> {
    let lists = [
        ToolListChangedNotification::NAME,
        PromptListChangedNotification::NAME,
        ResourceListChangedNotification::NAME,
    ];
    let lists = lists.map(|name| Notification::new(name, None));
    let resources = held.into_iter().map(|uri| {
        let params = Json::encode(&ResourceUpdatedNotificationParams::new(uri));
        Notification::new(ResourceUpdatedNotification::NAME, params.ok())
    });
    lists.into_iter().chain(resources).collect()
}

fn stream_lost(error: Arc<Error>) -> Error {
    Error::Transport {
        what: "notifications of the server are no longer received".into(),
        source: Some(Box::new(error)),
    }
}

/// A subscription made of legacy parts.
struct Listen {
    peer: Peer,
    caller: Arc<Caller>,
    listener: Listener,
    filter: SubscriptionFilter,
    /// Requests that are not answered yet.
    subscribing: VecDeque<Subscribing>,
    /// Resources whose last holder unsubscribes.
    held: Vec<String>,
    acknowledged: bool,
}

/// A `resources/subscribe` under way.
struct Subscribing {
    uri: String,
    call: Option<CallId>,
    exchange: Exchange,
    /// Before which reset it was sent: an answer of a server that has been reset since confirms nothing.
    generation: u64,
}

impl Listen {
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
                self.ask(uri.clone());
            }
            self.held.push(uri);
        }
    }

    /// The server has forgotten its subscriptions: asks for those that no other holder has asked for since.
    fn subscribe_again(&mut self) {
        for uri in self.held.clone() {
            if !self.peer.with(|state| state.legacy.is_confirmed(&uri)) {
                self.ask(uri);
            }
        }
    }

    fn ask(&mut self, uri: String) {
        let params = SubscribeRequestParams::new(uri.clone());
        let request = self.request::<SubscribeRequest>(&params);
        // Its cancel would leave open whether the server obeyed; unsubscribing does not.
        let options = CallOptions {
            cancel_on_abandon: false,
            ..limited()
        };
        let generation = self.peer.with(|state| state.legacy.generation);
        let (call, exchange) = self.peer.call(&request, options);
        self.subscribing.push_back(Subscribing {
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

    /// Lets go of requests that were not answered. Those that left may have been heard.
    fn stop_subscribing(&mut self) {
        for Subscribing {
            uri,
            call,
            exchange,
            ..
        } in self.subscribing.drain(..)
        {
            self.peer.with(|state| {
                if call.is_some_and(|call| !state.mux.is_unsent(call)) {
                    state.legacy.may_be_known(&uri);
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

    fn wants(&self, notification: &Notification) -> bool {
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

impl Ongoing for Listen {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        while let Some(subscribing) = self.subscribing.front_mut() {
            let Step::Answered(answer) = task::ready!(subscribing.exchange.poll_step(cx)) else {
                continue;
            };
            let answered = self.subscribing.pop_front();
            if let Err(error) = answer {
                return Poll::Ready(Step::Answered(Err(error)));
            }
            if let Some(Subscribing {
                uri, generation, ..
            }) = answered
            {
                let confirm = |state: &mut State| state.legacy.confirm(&uri, generation);
                self.peer.with(confirm);
            }
        }
        if !self.acknowledged {
            self.acknowledged = true;
            return Poll::Ready(Step::Notification(self.acknowledgement()));
        }
        loop {
            match task::ready!(self.listener.poll_next(cx)) {
                Some(Heard::Notification(notification)) if self.wants(&notification) => {
                    return Poll::Ready(Step::Notification(notification));
                }
                Some(Heard::Notification(_)) => {}
                Some(Heard::Reset) => {
                    // What was lost meanwhile is in the queue, behind this: it is told once the server has agreed.
                    self.subscribe_again();
                    return self.poll_step(cx);
                }
                Some(Heard::Lagged) => return Poll::Ready(Step::Answered(Err(Error::Lagged))),
                Some(Heard::Lost(error)) => {
                    return Poll::Ready(Step::Answered(Err(stream_lost(error))));
                }
                None => return Poll::Ready(Step::Answered(Err(self.peer.end_error()))),
            }
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        None
    }

    fn paused(&self) -> Duration {
        Duration::ZERO
    }

    fn cancel(self: Box<Self>, _: String) {}
}

impl Drop for Listen {
    fn drop(&mut self) {
        self.stop_subscribing();
        for uri in std::mem::take(&mut self.held) {
            if self.peer.with(|state| state.legacy.let_go(&uri)) {
                let params = UnsubscribeRequestParams::new(uri);
                let request = self.request::<UnsubscribeRequest>(&params);
                // Nobody waits for the answer; the deadline ends the call.
                if let Err(error) = self.peer.start(&request, limited(), None) {
                    tracing::debug!(error = %shortened(&error), "a resource was not unsubscribed from");
                }
            }
        }
    }
}

/// What the server of one wire was asked to remember.
#[derive(Debug, Default)]
pub(super) struct Held {
    resources: BTreeMap<String, Watched>,
    /// The last `logging/setLevel`.
    log_level: Option<Request>,
    /// Counts the changes of the level and of the server's memory of it.
    level_version: u64,
    /// Whether the level must be set again, because the server has forgotten it.
    must_restore: bool,
    /// Whether a task does that.
    is_restoring: bool,
    /// How often the server has forgotten all of it.
    generation: u64,
}

#[derive(Debug, Default)]
struct Watched {
    holders: usize,
    /// Whether the server may think that we are subscribed, so that it must be told when we are not.
    is_known: bool,
    /// In which generation the server agreed. Until it has in this one every holder asks for itself, because another's
    /// request may still be withdrawn or refused.
    confirmed: Option<u64>,
}

impl Held {
    /// Adds a holder. Whether it must ask the server.
    fn hold(&mut self, uri: &str) -> bool {
        let watched = self.resources.entry(uri.to_owned()).or_default();
        watched.holders += 1;
        !self.is_confirmed(uri)
    }

    fn is_confirmed(&self, uri: &str) -> bool {
        let confirmed = self
            .resources
            .get(uri)
            .and_then(|watched| watched.confirmed);
        confirmed == Some(self.generation)
    }

    /// The server may have heard of a request that nobody waits for any more.
    fn may_be_known(&mut self, uri: &str) {
        if let Some(watched) = self.resources.get_mut(uri) {
            watched.is_known = true;
        }
    }

    /// The server agreed to a request that was sent in this generation.
    fn confirm(&mut self, uri: &str, generation: u64) {
        if let Some(watched) = self.resources.get_mut(uri) {
            watched.is_known = true;
            watched.confirmed = Some(generation);
        }
    }

    /// Takes a holder away. Whether it was the last, and must tell the server.
    fn let_go(&mut self, uri: &str) -> bool {
        let Some(watched) = self.resources.get_mut(uri) else {
            return false;
        };
        watched.holders -= 1;
        if watched.holders > 0 {
            return false;
        }
        let must_tell = watched.is_known;
        self.resources.remove(uri);
        must_tell
    }

    /// The application sets another level; returns the request that set the one before.
    fn set_level(&mut self, request: Request) -> Option<Request> {
        self.level_version += 1;
        self.log_level.replace(request)
    }

    /// The request that sets the level again, if the server must be sent one. Without one the task that asks is over.
    fn level_to_restore(&mut self) -> Option<(Request, u64)> {
        let request = self.log_level.clone().filter(|_| self.must_restore);
        self.is_restoring = request.is_some();
        Some((request?, self.level_version))
    }

    /// The server has answered. If the level was set or forgotten meanwhile, the answer says nothing about that.
    fn restored(&mut self, version: u64) {
        self.must_restore = self.level_version != version;
    }

    /// The server has forgotten everything.
    pub(super) fn reset(&mut self) {
        self.generation += 1;
        self.level_version += 1;
        self.must_restore = true;
        for watched in self.resources.values_mut() {
            watched.is_known = false;
        }
    }

    /// The resources that have a holder.
    pub(super) fn held(&self) -> Vec<String> {
        self.resources.keys().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

/// What the clients of one legacy wire are told without asking each time.
#[derive(Default)]
pub(super) struct Watches {
    tasks: JoinSet<()>,
    by_uri: BTreeMap<String, tokio::task::AbortHandle>,
    lists: Option<tokio::task::AbortHandle>,
}

impl Watches {
    pub(super) fn watch(
        &mut self,
        peer: &Peer,
        caller: Arc<Caller>,
        responder: Arc<dyn Responder>,
        uri: String,
    ) {
        if self.by_uri.contains_key(&uri) {
            return;
        }
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(vec![uri.clone()]);
        let task = self.start(peer, caller, responder, filter);
        self.by_uri.insert(uri, task);
    }

    pub(super) fn watch_lists(
        &mut self,
        peer: &Peer,
        caller: Arc<Caller>,
        responder: Arc<dyn Responder>,
    ) {
        // The client of an earlier handshake was another, perhaps with another version. It must not be told besides.
        if let Some(earlier) = self.lists.take() {
            earlier.abort();
            while self.tasks.try_join_next().is_some() {}
        }
        let mut filter = SubscriptionFilter::default();
        filter.tools_list_changed = Some(true);
        filter.prompts_list_changed = Some(true);
        filter.resources_list_changed = Some(true);
        self.lists = Some(self.start(peer, caller, responder, filter));
    }

    /// On a client: sets the log level again that the server has forgotten.
    pub(super) fn restore_log_level(&mut self, peer: &Peer) {
        while self.tasks.try_join_next().is_some() {}
        // The task that is at it already sees for itself that the server has forgotten the level once more.
        let is_restoring =
            |state: &mut State| std::mem::replace(&mut state.legacy.is_restoring, true);
        if !peer.with(is_restoring) {
            self.tasks.spawn(restore_log_level(peer.clone()));
        }
    }

    /// Whether `uri` is watched, or may be without there being more than `most`.
    pub(super) fn has_room_for(&self, uri: &str, most: usize) -> bool {
        self.by_uri.len() < most || self.by_uri.contains_key(uri)
    }

    pub(super) fn unwatch(&mut self, uri: &str) {
        self.by_uri
            .remove(uri)
            .into_iter()
            .for_each(|task| task.abort());
        while self.tasks.try_join_next().is_some() {}
    }

    pub(super) fn clear(&mut self) {
        self.by_uri.clear();
        self.tasks.abort_all();
    }

    fn start(
        &mut self,
        peer: &Peer,
        caller: Arc<Caller>,
        responder: Arc<dyn Responder>,
        filter: SubscriptionFilter,
    ) -> tokio::task::AbortHandle {
        let params = Json::encode(&SubscriptionsListenRequestParams::new(filter));
        let params = params.unwrap_or_else(|_| Json::empty_object());
        let request = Request::new(LISTEN, params, caller);
        let cx = Context::new(
            "unsolicited".into(),
            &request,
            Arc::new(Unsolicited {
                peer: peer.clone(),
                caller: request.caller.clone(),
            }),
        );
        let mut running = run(responder, request, cx);
        // Polled once here, so that it listens before the client is told that it does; the task polls it
        // again, with a waker that counts.
        let first = Pin::new(&mut running).poll(&mut task::Context::from_waker(Waker::noop()));
        self.tasks.spawn(async move {
            if first.is_pending() {
                drop(running.await);
            }
        })
    }
}

/// Onto the wire, as if nobody had asked.
struct Unsolicited {
    peer: Peer,
    caller: Arc<Caller>,
}

impl Outlet for Unsolicited {
    fn notify(&self, notification: Notification) {
        if let Some(notification) = tell(self.caller.dialect, notification) {
            self.peer.notify(notification);
        }
    }

    fn way_back(&self) -> Option<Arc<dyn Channel>> {
        None
    }
}

fn limited() -> CallOptions {
    CallOptions {
        total_timeout: Some(Duration::from_secs(30)),
        ..CallOptions::default()
    }
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
