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

use bowline_core::Notification;
use bowline_core::era::{Caller, Request, tell};
use bowline_core::mux::{CallId, CallOptions};
use bowline_types::{
    Json, Method, Notice, PromptListChangedNotification, RequestId,
    ResourceListChangedNotification, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams, SubscribeRequest, SubscribeRequestParams,
    SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams,
    ToolListChangedNotification, UnsubscribeRequest, UnsubscribeRequestParams,
};
use tokio::task::JoinSet;

use super::notices::{Lagged, Listener};
use super::{LISTEN, Peer};
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
                let params = SubscribeRequestParams::new(uri.clone());
                let request = self.request::<SubscribeRequest>(&params);
                // Its cancel would leave open whether the server obeyed; unsubscribing does not.
                let options = CallOptions {
                    cancel_on_abandon: false,
                    ..limited()
                };
                let (call, exchange) = self.peer.call(&request, options);
                let uri = uri.clone();
                self.subscribing.push_back(Subscribing {
                    uri,
                    call,
                    exchange,
                });
            }
            self.held.push(uri);
        }
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
            if let Some(Subscribing { uri, .. }) = answered {
                self.peer.with(|state| state.legacy.confirm(&uri));
            }
        }
        if !self.acknowledged {
            self.acknowledged = true;
            return Poll::Ready(Step::Notification(self.acknowledgement()));
        }
        loop {
            match task::ready!(self.listener.poll_next(cx)) {
                Some(Ok(notification)) if self.wants(&notification) => {
                    return Poll::Ready(Step::Notification(notification));
                }
                Some(Ok(_)) => {}
                Some(Err(Lagged)) => return Poll::Ready(Step::Answered(Err(Error::Lagged))),
                None => return Poll::Ready(Step::Answered(Err(self.peer.end_error()))),
            }
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        None
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
                    tracing::debug!(%error, "a resource was not unsubscribed from");
                }
            }
        }
    }
}

/// The resources that somebody wants to hear of, on one wire.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<String, Watched>);

#[derive(Debug, Default)]
struct Watched {
    holders: usize,
    /// Whether the server may think that we are subscribed, so that it must be told when we are not.
    is_known: bool,
    /// Whether the server said that we are. Until then every holder asks for itself, because another's
    /// request may still be withdrawn or refused.
    is_confirmed: bool,
}

impl Held {
    /// Adds a holder. Whether it must ask the server.
    fn hold(&mut self, uri: &str) -> bool {
        let watched = self.0.entry(uri.to_owned()).or_default();
        watched.holders += 1;
        !watched.is_confirmed
    }

    /// The server may have heard of a request that nobody waits for any more.
    fn may_be_known(&mut self, uri: &str) {
        if let Some(watched) = self.0.get_mut(uri) {
            watched.is_known = true;
        }
    }

    /// The server said yes.
    fn confirm(&mut self, uri: &str) {
        if let Some(watched) = self.0.get_mut(uri) {
            watched.is_known = true;
            watched.is_confirmed = true;
        }
    }

    /// Takes a holder away. Whether it was the last, and must tell the server.
    fn let_go(&mut self, uri: &str) -> bool {
        let Some(watched) = self.0.get_mut(uri) else {
            return false;
        };
        watched.holders -= 1;
        if watched.holders > 0 {
            return false;
        }
        let must_tell = watched.is_known;
        self.0.remove(uri);
        must_tell
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        if self.lists.is_some() {
            return;
        }
        let mut filter = SubscriptionFilter::default();
        filter.tools_list_changed = Some(true);
        filter.prompts_list_changed = Some(true);
        filter.resources_list_changed = Some(true);
        self.lists = Some(self.start(peer, caller, responder, filter));
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
