//! [`ListenMerger`]: one subscription to several servers.
//!
//! ```text
//!   part:    Opening ── acknowledged ──▶ Open ◀── acknowledged ── Lost
//!               │                          └───────── lost ────────▶┘
//!               └── lost ──▶ Lost              ended (from any) ──▶ Ended
//!   merged:  collecting ── no part is opening, or the timeout ──▶ acknowledged
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use bowline::Json;
use bowline::exchange::Notification;
use bowline_types::{
    NotificationMethod, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, ToolListChangedNotification,
};
use serde_json::Value;

/// Merges the acknowledgements and notifications of one `subscriptions/listen` per server into those of one.
///
/// The client gets one acknowledgement, before anything else: when all servers have acknowledged or failed, or when the
/// caller's timeout passes, so that a server that hangs holds up no other. It contains what the servers acknowledged, and
/// what was requested of those that have not answered: they are subscribed to later.
///
/// When a server acknowledges after that, or again after its connection was lost, changes may have been missed. The client
/// then gets one notification for everything that the server acknowledged.
///
/// The merger does no I/O and has no clock. Notifications keep their text; the subscription id in their `_meta` is that of
/// the server, for the caller to rewrite. Notifications that the merger creates itself have no `_meta`.
///
/// # Examples
///
/// ```
/// use bowline::Json;
/// use bowline::exchange::Notification;
/// use bowline_bridge::many::{ListenEvent, ListenMerger};
///
/// let wanted = Json::parse(r#"{"toolsListChanged": true, "resourceSubscriptions": ["note:1"]}"#)?;
/// let mut merger = ListenMerger::new(&wanted.decode()?, ["files", "notes"], |_uri| Some("notes"));
/// assert!(merger.filter("files").unwrap().resource_subscriptions.is_none());
///
/// let acknowledged = |filter: &str| -> Result<Notification, serde_json::Error> {
///     let params = Json::parse(format!(r#"{{"notifications": {filter}}}"#))?;
///     Ok(Notification { method: "notifications/subscriptions/acknowledged".into(), params: Some(params) })
/// };
/// assert!(merger.handle_notification("files", acknowledged("{}")?).is_empty());
/// let events = merger.handle_notification("notes", acknowledged(r#"{"toolsListChanged": true}"#)?);
/// let [ListenEvent::Acknowledged(filter)] = &events[..] else { panic!("{events:?}") };
/// assert_eq!(filter.tools_list_changed, Some(true));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct ListenMerger {
    parts: BTreeMap<String, ListenPart>,
    is_acknowledged: bool,
    /// Notifications that wait for the acknowledgement, without duplicates.
    waiting: Vec<Notification>,
    /// The size of their params.
    waiting_bytes: usize,
    dropped: u64,
}

/// What a [`ListenMerger`] has for the client, in this order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ListenEvent {
    /// The acknowledgement. It comes once, as the first event.
    Acknowledged(SubscriptionFilter),
    /// A notification.
    Notification(Notification),
    /// The subscription has ended, because those of all servers have.
    Ended,
}

#[derive(Debug)]
struct ListenPart {
    wanted: SubscriptionFilter,
    state: PartState,
}

#[derive(Debug)]
enum PartState {
    /// Not acknowledged yet.
    Opening,
    /// Acknowledged.
    Open(SubscriptionFilter),
    /// The connection is lost and will be opened again.
    Lost,
    /// The server has ended the subscription, or does not support it.
    Ended,
}

impl ListenMerger {
    /// Splits a subscription between servers. `route` returns the server of a resource, which must be among `servers`;
    /// resources without one are not subscribed to. Extensions' members of the filter go to all servers.
    pub fn new<'a>(
        wanted: &SubscriptionFilter,
        servers: impl IntoIterator<Item = &'a str>,
        route: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let mut lists = wanted.clone();
        lists.resource_subscriptions = None;
        let mut parts: BTreeMap<_, _> = (servers.into_iter())
            .map(|server| {
                let part = ListenPart {
                    wanted: lists.clone(),
                    state: PartState::Opening,
                };
                (server.to_owned(), part)
            })
            .collect();
        for uri in wanted.resource_subscriptions.iter().flatten() {
            let part = route(uri).and_then(|server| parts.get_mut(server));
            if let Some(part) = part {
                let uris = part.wanted.resource_subscriptions.get_or_insert_default();
                uris.push(uri.clone());
            }
        }
        parts.retain(|_, part| !is_empty(&part.wanted));
        Self {
            parts,
            is_acknowledged: false,
            waiting: Vec::new(),
            waiting_bytes: 0,
            dropped: 0,
        }
    }

    /// Edits the filter of each server before it is subscribed to, for members of extensions that concern only some
    /// servers. A server with an empty filter is not subscribed to.
    pub fn edit_filters(&mut self, edit: impl Fn(&str, &mut SubscriptionFilter)) {
        for (server, part) in &mut self.parts {
            edit(server, &mut part.wanted);
        }
        self.parts.retain(|_, part| !is_empty(&part.wanted));
    }

    /// Returns the servers to subscribe to, with the filter for each.
    pub fn filters(&self) -> impl Iterator<Item = (&str, &SubscriptionFilter)> {
        let parts = self.parts.iter();
        parts.map(|(server, part)| (server.as_str(), &part.wanted))
    }

    /// Returns the filter for one server; `None` if nothing is wanted from it.
    #[must_use]
    pub fn filter(&self, server: &str) -> Option<&SubscriptionFilter> {
        self.parts.get(server).map(|part| &part.wanted)
    }

    /// Returns what is known from the start: the acknowledgement, if there is no server to subscribe to.
    #[must_use = "the events are for the client"]
    pub fn start(&mut self) -> Vec<ListenEvent> {
        self.acknowledge_if_settled()
    }

    /// Handles a notification of a server's subscription, its acknowledgement included.
    #[must_use = "the events are for the client"]
    pub fn handle_notification(
        &mut self,
        server: &str,
        notification: Notification,
    ) -> Vec<ListenEvent> {
        let Some(part) = self.parts.get(server) else {
            return Vec::new();
        };
        if notification.method == SubscriptionsAcknowledgedNotification::NAME {
            let params = notification.params.as_ref();
            let params = params.and_then(|params| params.decode().ok());
            let params: SubscriptionsAcknowledgedNotificationParams = params.unwrap_or_default();
            return self.acknowledged(server, params.notifications);
        }
        if !covers(&part.wanted, &notification.method) || matches!(part.state, PartState::Ended) {
            return Vec::new();
        }
        self.notify(notification)
    }

    /// Handles the loss of a server's connection. The subscription is to be opened again.
    #[must_use = "the events are for the client"]
    pub fn handle_lost(&mut self, server: &str) -> Vec<ListenEvent> {
        self.set_state(server, PartState::Lost);
        self.acknowledge_if_settled()
    }

    /// Handles the end of a server's subscription, by its result or because the server does not support it.
    #[must_use = "the events are for the client"]
    pub fn handle_ended(&mut self, server: &str) -> Vec<ListenEvent> {
        let had_ended = self.has_ended();
        self.set_state(server, PartState::Ended);
        let mut events = self.acknowledge_if_settled();
        if !had_ended && self.has_ended() {
            events.push(ListenEvent::Ended);
        }
        events
    }

    /// Acknowledges without those servers that have not answered yet.
    #[must_use = "the events are for the client"]
    pub fn handle_timeout(&mut self) -> Vec<ListenEvent> {
        if self.is_acknowledged {
            return Vec::new();
        }
        self.is_acknowledged = true;
        let mut filter = SubscriptionFilter::default();
        for part in self.parts.values() {
            match &part.state {
                PartState::Open(acknowledged) => unite(&mut filter, acknowledged),
                // They get what they have missed when the server acknowledges.
                PartState::Opening | PartState::Lost => unite(&mut filter, &part.wanted),
                PartState::Ended => {}
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let mut events = vec![ListenEvent::Acknowledged(filter)];
        events.extend(waiting.into_iter().map(ListenEvent::Notification));
        events
    }

    /// Returns whether the client has its acknowledgement.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Returns how many notifications were dropped because too many waited for the acknowledgement.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn acknowledged(&mut self, server: &str, filter: SubscriptionFilter) -> Vec<ListenEvent> {
        let Some(part) = self.parts.get_mut(server) else {
            return Vec::new();
        };
        // A server that acknowledges twice has not lost anything.
        let is_repeated = matches!(part.state, PartState::Open(_) | PartState::Ended);
        let filter = intersection(&part.wanted, filter);
        let missed = match is_repeated || !self.is_acknowledged {
            true => Vec::new(),
            false => all_notifications(&filter),
        };
        if !is_repeated {
            part.state = PartState::Open(filter);
        }
        let mut events = self.acknowledge_if_settled();
        events.extend(missed.into_iter().map(ListenEvent::Notification));
        events
    }

    fn notify(&mut self, notification: Notification) -> Vec<ListenEvent> {
        if self.is_acknowledged {
            return vec![ListenEvent::Notification(notification)];
        }
        let is_same = |waiting: &Notification| {
            waiting.method == notification.method && uri_of(waiting) == uri_of(&notification)
        };
        let is_change = CHANGES.contains(&&*notification.method);
        let is_known = self.waiting.iter().any(|it| is_change && is_same(it));
        if is_known {
            return Vec::new();
        }
        let params = notification.params.as_ref();
        let bytes = self.waiting_bytes + params.map_or(0, |params| params.as_bytes().len());
        if self.waiting.len() >= MAX_WAITING || bytes > MAX_WAITING_BYTES {
            self.dropped += 1;
        } else {
            self.waiting_bytes = bytes;
            self.waiting.push(notification);
        }
        Vec::new()
    }

    fn acknowledge_if_settled(&mut self) -> Vec<ListenEvent> {
        let is_opening = |part: &ListenPart| matches!(part.state, PartState::Opening);
        match self.parts.values().any(is_opening) {
            true => Vec::new(),
            false => self.handle_timeout(),
        }
    }

    fn set_state(&mut self, server: &str, state: PartState) {
        let part = self.parts.get_mut(server);
        if let Some(part) = part.filter(|part| !matches!(part.state, PartState::Ended)) {
            part.state = state;
        }
    }

    fn has_ended(&self) -> bool {
        let mut parts = self.parts.values();
        parts.all(|part| matches!(part.state, PartState::Ended))
    }
}

fn is_empty(filter: &SubscriptionFilter) -> bool {
    let is_wanted = |flag: Option<bool>| flag == Some(true);
    let uris = filter.resource_subscriptions.as_deref();
    !is_wanted(filter.tools_list_changed)
        && !is_wanted(filter.prompts_list_changed)
        && !is_wanted(filter.resources_list_changed)
        && uris.is_none_or(<[_]>::is_empty)
        && filter.other.is_empty()
}

/// Returns whether a notification is one that the filter asks for.
fn covers(filter: &SubscriptionFilter, method: &str) -> bool {
    match method {
        ToolListChangedNotification::NAME => filter.tools_list_changed == Some(true),
        PromptListChangedNotification::NAME => filter.prompts_list_changed == Some(true),
        ResourceListChangedNotification::NAME => filter.resources_list_changed == Some(true),
        // The URI may be below the one that was subscribed to.
        ResourceUpdatedNotification::NAME => {
            let uris = filter.resource_subscriptions.as_deref();
            uris.is_some_and(|uris| !uris.is_empty())
        }
        _ => !filter.other.is_empty(),
    }
}

/// Adds to `filter` what `other` has.
fn unite(filter: &mut SubscriptionFilter, other: &SubscriptionFilter) {
    let set = |flag: &mut Option<bool>, other: Option<bool>| {
        if other == Some(true) {
            *flag = Some(true);
        }
    };
    set(&mut filter.tools_list_changed, other.tools_list_changed);
    set(&mut filter.prompts_list_changed, other.prompts_list_changed);
    set(
        &mut filter.resources_list_changed,
        other.resources_list_changed,
    );
    if let Some(uris) = &other.resource_subscriptions {
        let all = filter.resource_subscriptions.get_or_insert_default();
        all.extend(uris.iter().cloned());
    }
    for (name, value) in &other.other {
        match (filter.other.get_mut(name), value) {
            (Some(Value::Array(all)), Value::Array(more)) => all.extend(more.iter().cloned()),
            (Some(_), _) => {}
            (None, value) => drop(filter.other.insert(name.clone(), value.clone())),
        }
    }
}

/// Returns what a server acknowledged, without what was not requested of it.
fn intersection(wanted: &SubscriptionFilter, mut filter: SubscriptionFilter) -> SubscriptionFilter {
    let keep = |flag: &mut Option<bool>, wanted: Option<bool>| {
        *flag = flag.filter(|flag| *flag && wanted == Some(true));
    };
    keep(&mut filter.tools_list_changed, wanted.tools_list_changed);
    keep(
        &mut filter.prompts_list_changed,
        wanted.prompts_list_changed,
    );
    keep(
        &mut filter.resources_list_changed,
        wanted.resources_list_changed,
    );
    let uris = wanted.resource_subscriptions.as_deref().unwrap_or_default();
    if let Some(acknowledged) = &mut filter.resource_subscriptions {
        acknowledged.retain(|uri| uris.contains(uri));
    }
    filter
        .other
        .retain(|name, _| wanted.other.contains_key(name));
    filter
}

/// Returns one notification for everything in a filter.
fn all_notifications(filter: &SubscriptionFilter) -> Vec<Notification> {
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
    let lists = lists.into_iter().filter(|(flag, _)| *flag == Some(true));
    let lists = lists.map(|(_, method)| Notification {
        method: Cow::Borrowed(method),
        params: None,
    });
    let uris = filter.resource_subscriptions.iter().flatten();
    let updates = uris.map(|uri| Notification {
        method: Cow::Borrowed(ResourceUpdatedNotification::NAME),
        params: Some(serde_json::json!({ "uri": uri }).into()),
    });
    lists.chain(updates).collect()
}

fn uri_of(notification: &Notification) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Updated {
        uri: Option<String>,
    }
    let params = notification.params.as_ref().map(Json::decode::<Updated>);
    params.and_then(Result::ok).and_then(|updated| updated.uri)
}

/// Notifications of which a second one says nothing new.
const CHANGES: [&str; 4] = [
    ToolListChangedNotification::NAME,
    PromptListChangedNotification::NAME,
    ResourceListChangedNotification::NAME,
    ResourceUpdatedNotification::NAME,
];

/// What waits for an acknowledgement, which comes within seconds.
const MAX_WAITING: usize = 256;
/// For notifications of extensions, which may have any size.
const MAX_WAITING_BYTES: usize = 1024 * 1024;
