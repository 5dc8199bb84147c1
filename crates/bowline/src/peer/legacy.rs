//! Subscriptions in the legacy era, whose wire has no `subscriptions/listen`.
//!
//! On a client, the inside request is carried out by `resources/subscribe`, unsolicited notifications
//! and `resources/unsubscribe`. On a server, what such a client should hear is found by an inside
//! `subscriptions/listen` of our own. Neither client nor server code knows.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Caller, Request, tell};
use bowline_core::mux::CallOptions;
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
    subscribing: VecDeque<Exchange>,
    /// Resources whose last holder unsubscribes.
    held: Vec<String>,
    acknowledged: bool,
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
            let is_first = self.peer.with(|state| {
                let holders = state.watched.entry(uri.clone()).or_insert(0);
                *holders += 1;
                *holders == 1
            });
            if is_first {
                let params = SubscribeRequestParams::new(uri.clone());
                let request = self.request::<SubscribeRequest>(&params);
                // Its cancel would leave open whether the server obeyed; unsubscribing does not.
                let options = CallOptions {
                    cancel_on_abandon: false,
                    ..limited()
                };
                self.subscribing
                    .push_back(self.peer.call(&request, options));
            }
            self.held.push(uri);
        }
    }

    fn request<M: Method>(&self, params: &M::Params) -> Request {
        let params = Json::encode(params).unwrap_or_else(|_| Json::empty_object());
        Request::new(M::NAME, params, self.caller.clone())
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
            match task::ready!(subscribing.poll_step(cx)) {
                Step::Notification(_) => {}
                Step::Answered(Ok(_)) => drop(self.subscribing.pop_front()),
                Step::Answered(Err(error)) => {
                    self.subscribing.pop_front();
                    return Poll::Ready(Step::Answered(Err(error)));
                }
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
        for uri in std::mem::take(&mut self.held) {
            let is_last = self.peer.with(|state| {
                let Some(holders) = state.watched.get_mut(&uri) else {
                    return false;
                };
                *holders -= 1;
                let is_last = *holders == 0;
                if is_last {
                    state.watched.remove(&uri);
                }
                is_last
            });
            if is_last {
                let params = UnsubscribeRequestParams::new(uri);
                let request = self.request::<UnsubscribeRequest>(&params);
                self.peer.call_unheard(&request, limited());
            }
        }
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
            Unsolicited {
                peer: peer.clone(),
                caller: request.caller.clone(),
            },
        );
        let running = run(responder, request, cx);
        self.tasks.spawn(async move { drop(running.await) })
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
