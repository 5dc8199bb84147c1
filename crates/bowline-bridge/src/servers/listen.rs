//! The merged `subscriptions/listen`: one subscription for each server, opened again when it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::Cluster;
use bowline::exchange::{
    Channel, ConnectionState, Notification, NotificationSink, Outcome, Request,
};
use bowline::{Context, ErrorCode, Json, RpcError};
use bowline_core::json::Object;
use bowline_types::{
    Meta, NotificationMethod, PromptListChangedNotification, RequestId,
    ResourceListChangedNotification, ResourceUpdatedNotification, SubscriptionFilter,
    SubscriptionsAcknowledgedNotification, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams, SubscriptionsListenResult, ToolListChangedNotification,
    meta_key,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::front_request::FrontRequest;
use super::part_events::{PartEvent, PartEventKind, PartEvents, lagged};
use super::set::ServerEntry;
use super::{Servers, one};
use crate::config::ItemKind;
use crate::many::{ListenEvent, ListenMerger, unknown_item};
use crate::modern::ModernCalls;
use crate::replicas::Replicas;
use crate::tasks::TaskAccess;

/// Answers `subscriptions/listen`. After a reload, the servers of the new configuration are subscribed to.
pub(super) async fn listen(
    servers: &Servers,
    modern: &ModernCalls,
    request: Request,
    cx: Context,
) -> Outcome {
    let params: SubscriptionsListenRequestParams =
        request.params.decode().map_err(RpcError::invalid_params)?;
    let mut client = ListeningClient {
        cx: cx.clone(),
        wanted: params.notifications,
        is_acknowledged: false,
    };
    let cluster = modern.replicas().map(Replicas::cluster);
    let mut sets = servers.current.subscribe();
    loop {
        let set = sets.borrow_and_update().clone();
        let front = FrontRequest::new(set, servers.memory.clone(), request.clone(), cx.clone());
        tokio::select! {
            biased;
            () = cx.shutting_down() => break,
            changed = sets.changed() => {
                if changed.is_err() {
                    break;
                }
            }
            error = listen_to_set(&front, cluster, &mut client) => return Err(error),
        }
    }
    let result = SubscriptionsListenResult::new(cx.request_id());
    Json::encode(&result).map_err(|error| RpcError::internal(error.to_string()))
}

/// Passes on the notifications of the servers of one configuration. Returns only if there is nothing to listen to, or if
/// notifications were lost.
async fn listen_to_set(
    front: &FrontRequest,
    cluster: Option<&Cluster>,
    client: &mut ListeningClient,
) -> RpcError {
    client.changed_lists();
    let routes = front.resource_servers(&client.wanted).await;
    if let Some(refused) = client.refusal(&routes) {
        return refused;
    }
    let names: Vec<_> = front.usable().map(|entry| entry.name()).collect();
    let mut merger = ListenMerger::new(&client.wanted, names.iter().copied(), |uri| {
        let server = routes.get(uri)?;
        names.iter().copied().find(|name| name == server)
    });
    let ids = front.task_ids();
    merger.edit_filters(|server, filter| ids.keep_own(server, filter));
    let events = Arc::new(PartEvents::default());
    let mut parts = JoinSet::new();
    for (server, filter) in merger.filters() {
        if let Some(entry) = front.set.get(server) {
            let part = ListenPart::new(front, cluster, entry, filter, events.clone());
            let checked = part
                .access()
                .map(|access| access.check_filter(&part.request));
            if let Some(Err(refused)) = checked {
                return refused;
            }
            parts.spawn(part.keep_open());
        }
    }
    client.pass_on(merger.start());
    let limits = front.usable().map(|entry| entry.settings().list_timeout);
    let limit = limits.max().unwrap_or_default().min(MAX_ACKNOWLEDGE_TIME);
    let mut timeout = std::pin::pin!(tokio::time::sleep(limit));
    loop {
        tokio::select! {
            biased; // events first: they may complete the acknowledgement that the timeout sends without them
            event = events.next() => {
                let event = match event {
                    Ok(event) => event,
                    Err(lagged) => return lagged,
                };
                let server = event.server.clone();
                client.handle(front, &mut merger, event);
                if merger.dropped() > 0 {
                    return lagged(&server);
                }
            }
            () = &mut timeout, if !merger.is_acknowledged() => client.pass_on(merger.handle_timeout()),
        }
    }
}

/// The client that listens.
struct ListeningClient {
    cx: Context,
    wanted: SubscriptionFilter,
    /// Whether it has its acknowledgement. There is one, even if the configuration is replaced.
    is_acknowledged: bool,
}

impl ListeningClient {
    /// Returns an error if a legacy client subscribes to resources that no server has. A modern one sees that in the
    /// acknowledgement.
    fn refusal(&self, routes: &BTreeMap<String, String>) -> Option<RpcError> {
        let is_legacy = !self.cx.caller().dialect.is_modern();
        let uris = self.wanted.resource_subscriptions.as_deref();
        let uri = uris.and_then(<[_]>::first)?;
        let is_refused = is_legacy && routes.is_empty() && !self.is_acknowledged;
        is_refused.then(|| unknown_item(ItemKind::Resource, uri))
    }

    fn handle(&mut self, front: &FrontRequest, merger: &mut ListenMerger, event: PartEvent) {
        let PartEvent { server, kind } = event;
        let events = match kind {
            PartEventKind::Lost => merger.handle_lost(&server),
            PartEventKind::Ended => merger.handle_ended(&server),
            PartEventKind::Notification(notification) => {
                let entry = front.set.get(&server);
                if notification.method == ToolListChangedNotification::NAME
                    && let Some(pins) = entry.and_then(|entry| entry.pins())
                {
                    pins.forget_checked();
                }
                let notification = front.task_ids().convert_notification(&server, notification);
                match is_of_subscription(&notification.method) {
                    true => merger.handle_notification(&server, notification),
                    // What a legacy server sends outside of requests.
                    false => return self.cx.send(notification),
                }
            }
        };
        self.pass_on(events);
    }

    fn pass_on(&mut self, events: Vec<ListenEvent>) {
        for event in events {
            match event {
                ListenEvent::Acknowledged(_) if self.is_acknowledged => self.changed_all(),
                ListenEvent::Acknowledged(filter) => self.acknowledge(filter),
                ListenEvent::Notification(notification) => self.send(notification),
                // The bridge itself has changes: those of a reload.
                _ => {}
            }
        }
    }

    fn acknowledge(&mut self, mut filter: SubscriptionFilter) {
        // A reload changes every list.
        filter.tools_list_changed = self.wanted.tools_list_changed.filter(|it| *it);
        filter.prompts_list_changed = self.wanted.prompts_list_changed.filter(|it| *it);
        filter.resources_list_changed = self.wanted.resources_list_changed.filter(|it| *it);
        let mut params = SubscriptionsAcknowledgedNotificationParams::new(filter);
        let mut meta = Meta::default();
        meta.set_subscription_id(self.cx.request_id());
        params.meta = Some(meta);
        self.is_acknowledged = true;
        self.cx
            .notify::<SubscriptionsAcknowledgedNotification>(&params);
    }

    /// Announces every list, after a reload.
    fn changed_lists(&self) {
        if !self.is_acknowledged {
            return;
        }
        let lists = [
            (
                self.wanted.tools_list_changed,
                ToolListChangedNotification::NAME,
            ),
            (
                self.wanted.prompts_list_changed,
                PromptListChangedNotification::NAME,
            ),
            (
                self.wanted.resources_list_changed,
                ResourceListChangedNotification::NAME,
            ),
        ];
        for (_, method) in lists.into_iter().filter(|(it, _)| *it == Some(true)) {
            self.send(Notification::new(method, None));
        }
    }

    /// Announces everything that may have changed while the servers were subscribed to anew.
    fn changed_all(&self) {
        self.changed_lists();
        for uri in self.wanted.resource_subscriptions.iter().flatten() {
            let params = serde_json::json!({ "uri": uri });
            self.send(Notification::new(
                ResourceUpdatedNotification::NAME,
                Some(params.into()),
            ));
        }
    }

    fn send(&self, notification: Notification) {
        let id = self.cx.request_id();
        self.cx.send(with_subscription_id(notification, id));
    }
}

impl FrontRequest {
    /// Returns the servers of the resources of a filter that the client may use.
    async fn resource_servers(&self, wanted: &SubscriptionFilter) -> BTreeMap<String, String> {
        let uris = wanted.resource_subscriptions.as_deref().unwrap_or_default();
        let find = || -> BTreeMap<String, String> {
            self.memory.with_routes(|routes| {
                let server = |uri: &String| {
                    let server = routes.route(uri, |it| self.is_usable(it))?;
                    let access = &self.set.get(server)?.settings().access;
                    let is_allowed = access.allows(ItemKind::Resource, uri, &self.principal);
                    is_allowed.then(|| (uri.clone(), server.to_owned()))
                };
                uris.iter().filter_map(server).collect()
            })
        };
        let found = find();
        if found.len() < uris.len() && self.learn_resources().await {
            return find();
        }
        found
    }
}

/// The subscription to one server.
struct ListenPart {
    entry: Arc<ServerEntry>,
    request: Request,
    cx: Context,
    /// The other replicas, if there are some.
    cluster: Option<Cluster>,
    events: Arc<PartEvents>,
}

impl ListenPart {
    fn new(
        front: &FrontRequest,
        cluster: Option<&Cluster>,
        entry: &Arc<ServerEntry>,
        filter: &SubscriptionFilter,
        events: Arc<PartEvents>,
    ) -> Self {
        let mut filter = filter.clone();
        front.task_ids().to_inner(&mut filter);
        let mut request = front.request.clone();
        if let (Ok(mut params), Ok(filter)) =
            (Object::read(&front.request.params), Json::encode(&filter))
        {
            params.set("notifications", filter);
            request.params = params.to_json().into();
        }
        let sink = PartSink {
            server: entry.name().to_owned(),
            events: events.clone(),
            front: front.cx.clone(),
        };
        let id = front.cx.request_id().clone();
        let mut cx = Context::new(id, &request, Arc::new(sink));
        cx = cx.with_principal(front.cx.principal().clone());
        *cx.extensions_mut() = front.cx.extensions().clone();
        Self {
            entry: entry.clone(),
            request,
            cx,
            cluster: cluster.cloned(),
            events,
        }
    }

    fn access(&self) -> Option<TaskAccess<'_>> {
        TaskAccess::of(self.entry.upstream(), &self.cx, self.cluster.as_ref())
    }

    /// Subscribes, again and again, until the server turns out to have no subscriptions.
    async fn keep_open(self) {
        let mut failures = 0;
        loop {
            let opened_at = Instant::now();
            let (upstream, mut request) = (self.entry.upstream(), self.request.clone());
            if let Some(access) = self.access() {
                access.restrict(&mut request).await;
            }
            let outcome = one::listen(upstream, request, &self.cx).await;
            let kind = match outcome {
                Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND => PartEventKind::Ended,
                Err(error) => {
                    tracing::debug!(server = self.entry.name(), %error, "a subscription failed");
                    PartEventKind::Lost
                }
                Ok(_) => PartEventKind::Lost,
            };
            let has_ended = matches!(kind, PartEventKind::Ended);
            let server = self.entry.name().to_owned();
            self.events.push(PartEvent { server, kind });
            if has_ended {
                return;
            }
            let lasted = opened_at.elapsed() > MAX_PAUSE;
            failures = if lasted { 1 } else { failures + 1 };
            tokio::time::sleep(pause(failures)).await;
        }
    }
}

/// Where the notifications of one server go.
struct PartSink {
    server: String,
    events: Arc<PartEvents>,
    front: Context,
}

impl NotificationSink for PartSink {
    fn notify(&self, notification: Notification) {
        self.events.push(PartEvent {
            server: self.server.clone(),
            kind: PartEventKind::Notification(notification),
        });
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        self.front.back_channel()
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        self.front.connection_state()
    }
}

/// Returns whether a notification belongs to a subscription.
fn is_of_subscription(method: &str) -> bool {
    let methods = [
        SubscriptionsAcknowledgedNotification::NAME,
        ToolListChangedNotification::NAME,
        PromptListChangedNotification::NAME,
        ResourceListChangedNotification::NAME,
        ResourceUpdatedNotification::NAME,
    ];
    methods.contains(&method) || method == "notifications/tasks"
}

fn with_subscription_id(notification: Notification, id: &RequestId) -> Notification {
    let params = notification.params.unwrap_or_else(Json::empty_object);
    let params = match (Object::read(&params), Json::encode(id)) {
        (Ok(mut object), Ok(id)) => {
            let meta = object.member("_meta").cloned();
            let meta = meta.unwrap_or_else(Json::empty_object);
            let mut members = Object::read(&meta).unwrap_or_default();
            members.set(meta_key::SUBSCRIPTION_ID, id);
            object.set("_meta", members.to_json());
            object.to_json()
        }
        _ => params.clone(),
    };
    Notification::new(notification.method, Some(params))
}

/// Returns the pause before a subscription is opened again.
fn pause(failures: u32) -> Duration {
    let doubled = MIN_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(MAX_PAUSE)
}

const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long a client waits for its acknowledgement at most. A legacy front waits for 30 seconds.
const MAX_ACKNOWLEDGE_TIME: Duration = Duration::from_secs(20);
