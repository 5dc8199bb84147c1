//! Assembles a [`Conversation`] from the events of a recording.
//!
//! Answers belong to requests by their id, and over HTTP by the exchange that they arrived on. What names no request (a
//! question of a legacy server over stdio, a log message) belongs to the last request that is open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bowline_core::era::{Dialect, Dialects, Unsealed, unseal};
use bowline_core::input::RawInputRequest;
use bowline_core::json::pick;
use bowline_core::{Message, Notification, Outcome, RawRequest, Response};
use bowline_types::{
    DiscoverRequest, InitializeRequest, Json, Meta, Method, PingRequest, ProgressToken, RequestId,
    RpcError, SetLevelRequest, SubscribeRequest, SubscriptionsListenRequest,
    SubscriptionsListenRequestParams, UnsubscribeRequest,
};
use serde::Deserialize;

use super::legs::{Answered, Draft, QuestionAt};
use super::{Change, ChangeGroup, Conversation, Ending, RequestKey, bare_params};
use crate::{EndedBy, Event, EventKind, HttpHeader, Recording, Side, Transport};

pub(super) fn assemble(recording: &Recording) -> Conversation {
    let mut assembler = Assembler {
        is_http: recording.header.transport == Transport::Http,
        ..Assembler::default()
    };
    for event in &recording.events {
        assembler.add(event);
    }
    assembler.finish()
}

#[derive(Default)]
struct Assembler {
    is_http: bool,
    conversation: Conversation,
    drafts: Vec<Draft>,
    requests: Vec<OpenRequest>,
    /// The unanswered requests of clients, by scope and id.
    open: BTreeMap<(u64, RequestId), Vec<usize>>,
    /// The unanswered requests that a draft belongs to, by scope, in their order.
    open_drafts: BTreeMap<u64, BTreeSet<usize>>,
    by_exchange: BTreeMap<u64, usize>,
    by_token: BTreeMap<(u64, ProgressToken), usize>,
    /// The drafts that wait for another leg.
    waiting: BTreeMap<RequestKey, VecDeque<usize>>,
    /// The unanswered questions of servers.
    questions: BTreeMap<(u64, RequestId), Vec<(usize, QuestionAt)>>,
    negotiated: BTreeMap<u64, Handshake>,
    heads: BTreeMap<u64, HttpHead>,
}

/// A request of a client.
struct OpenRequest {
    scope: u64,
    id: RequestId,
    exchange: Option<u64>,
    dialect: &'static Dialect,
    purpose: Purpose,
    /// The time of its acknowledgement, of a subscription.
    acknowledged: Option<Duration>,
}

#[derive(Clone, Copy)]
enum Purpose {
    Call { draft: usize },
    Listen { draft: usize, group: usize },
    Handshake,
    Discover,
    /// The transports of a server answer it themselves.
    Internal,
}

struct Handshake {
    dialect: &'static Dialect,
    at: Duration,
    /// The notifications outside of requests.
    group: Option<usize>,
}

#[derive(Default)]
struct HttpHead {
    version: Option<&'static Dialect>,
    status: Option<u16>,
}

/// Where and when a message was observed.
#[derive(Clone, Copy)]
struct Place {
    at: Duration,
    /// Ids are unique in it: a connection, or all of a recording over HTTP, where a client has several.
    scope: u64,
    exchange: Option<u64>,
}

impl Assembler {
    fn add(&mut self, event: &Event) {
        let place = Place {
            at: event.at,
            scope: if self.is_http { 0 } else { event.connection },
            exchange: event.exchange,
        };
        match &event.kind {
            EventKind::Message { from, message } => {
                for message in messages(message) {
                    match from {
                        Side::Client => self.from_client(place, message),
                        Side::Server => self.from_server(place, message),
                    }
                }
            }
            EventKind::Request { headers, .. } => {
                if let Some(exchange) = event.exchange {
                    self.heads.entry(exchange).or_default().version = version_header(headers);
                }
            }
            EventKind::Response { status, .. } => {
                if let Some(exchange) = event.exchange {
                    self.heads.entry(exchange).or_default().status = Some(*status);
                }
            }
            EventKind::End { by, complete } => self.end_exchange(place, *by, *complete),
            _ => {}
        }
    }

    fn from_client(&mut self, place: Place, message: Message) {
        match message {
            Message::Request(request) => self.request(place, request),
            Message::Response(Response { id, outcome }) => {
                let Some(id) = id else { return };
                let questions = self.questions.get_mut(&(place.scope, id));
                if let Some((draft, question)) = questions.and_then(Vec::pop) {
                    self.drafts[draft].answer_question(place.at, question, outcome);
                }
            }
            Message::Notification(notification) => {
                if notification.method == "notifications/cancelled"
                    && let Some(id) = cancelled_id(&notification)
                    && let Some(request) = self.take_open(place, &id)
                    && let Some(draft) = self.requests[request].purpose.draft()
                {
                    self.drafts[draft].cancel(place.at);
                }
            }
        }
    }

    fn request(&mut self, place: Place, raw: RawRequest) {
        let params = raw.params.map_or_else(Json::empty_object, Into::into);
        let meta = meta_of(&params);
        let dialect = self.dialect_of(place, meta.as_ref());
        let purpose = match &*raw.method {
            InitializeRequest::NAME => {
                self.learn_client(pick_one(&params, "capabilities"));
                Purpose::Handshake
            }
            DiscoverRequest::NAME => Purpose::Discover,
            PingRequest::NAME
            | SetLevelRequest::NAME
            | SubscribeRequest::NAME
            | UnsubscribeRequest::NAME
                if !dialect.is_modern() =>
            {
                Purpose::Internal
            }
            SubscriptionsListenRequest::NAME => {
                let draft = self.new_draft(place, &raw, &params, dialect);
                let filter = params.decode::<SubscriptionsListenRequestParams>().ok();
                self.conversation.changes.push(ChangeGroup {
                    filter: filter.map(|params| params.notifications),
                    changes: Vec::new(),
                });
                let group = self.conversation.changes.len() - 1;
                Purpose::Listen { draft, group }
            }
            _ => {
                let draft = self.resume(place, &raw.method, &params);
                let draft =
                    draft.unwrap_or_else(|| self.new_draft(place, &raw, &params, dialect));
                Purpose::Call { draft }
            }
        };
        if let Some(meta) = &meta {
            let capabilities = meta.get(bowline_types::meta_key::CLIENT_CAPABILITIES);
            self.learn_client(capabilities.cloned());
        }
        let token = meta.and_then(|meta| meta.progress_token().ok().flatten());
        let at = self.requests.len();
        if let Some(token) = token {
            self.by_token.insert((place.scope, token), at);
        }
        if let Some(exchange) = place.exchange {
            self.by_exchange.insert(exchange, at);
        }
        if let Purpose::Call { .. } = purpose {
            self.open_drafts.entry(place.scope).or_default().insert(at);
        }
        let id = (place.scope, raw.id.clone());
        self.open.entry(id).or_default().push(at);
        self.requests.push(OpenRequest {
            scope: place.scope,
            id: raw.id,
            exchange: place.exchange,
            dialect,
            purpose,
            acknowledged: None,
        });
    }

    fn new_draft(
        &mut self,
        place: Place,
        raw: &RawRequest,
        params: &Json,
        dialect: &'static Dialect,
    ) -> usize {
        let draft = Draft::new(raw.method.clone(), params, dialect, place.at);
        self.drafts.push(draft);
        self.drafts.len() - 1
    }

    /// Returns the draft that a request with answers or a state continues.
    fn resume(&mut self, place: Place, method: &str, params: &Json) -> Option<usize> {
        let [responses, state] = pick(params, ["inputResponses", "requestState"]).ok()?;
        if responses.is_none() && state.is_none() {
            return None;
        }
        let waiting = self.waiting.get_mut(&RequestKey::new(method, params))?;
        let drafts = &self.drafts;
        let position = waiting
            .iter()
            .position(|&draft| drafts[draft].expects(state.as_ref()))?;
        let draft = waiting.remove(position)?;
        self.drafts[draft].resume(place.at, responses.as_ref());
        Some(draft)
    }

    fn from_server(&mut self, place: Place, message: Message) {
        match message {
            Message::Response(Response { id, outcome }) => {
                // An error without an id answers the request of its exchange.
                let id = id.or_else(|| self.request_of_exchange(place).map(|it| it.id.clone()));
                if let Some(id) = id
                    && let Some(request) = self.take_open(place, &id)
                {
                    self.answer(place, request, outcome);
                }
            }
            Message::Request(raw) => {
                let params = raw.params.map(Into::into);
                let question = RawInputRequest::from_request(&raw.method, params);
                let Some(question) = question else { return };
                if let Some(draft) = self.draft_in_progress(place) {
                    let at = self.drafts[draft].ask(place.at, question);
                    let id = (place.scope, raw.id);
                    self.questions.entry(id).or_default().push((draft, at));
                }
            }
            Message::Notification(notification) => self.notification(place, notification),
        }
    }

    fn answer(&mut self, place: Place, request: usize, outcome: Outcome) {
        let OpenRequest {
            dialect, purpose, ..
        } = self.requests[request];
        match purpose {
            Purpose::Call { draft } | Purpose::Listen { draft, .. } => {
                self.learn_server(outcome.as_ref().ok());
                if self.drafts[draft].answer(place.at, outcome) == Answered::WithQuestions {
                    let key = self.drafts[draft].script.key.clone();
                    self.waiting.entry(key).or_default().push_back(draft);
                }
            }
            Purpose::Handshake => {
                let negotiated = outcome.as_ref().ok().and_then(negotiated_version);
                if let Some(dialect) = negotiated {
                    let handshake = Handshake {
                        dialect,
                        at: place.at,
                        group: None,
                    };
                    self.negotiated.insert(place.scope, handshake);
                }
                self.introduce(negotiated.unwrap_or(latest_legacy()), outcome);
            }
            Purpose::Discover => self.introduce(dialect, outcome),
            Purpose::Internal => {}
        }
    }

    fn introduce(&mut self, dialect: &'static Dialect, outcome: Outcome) {
        let introduction = unseal(DiscoverRequest::NAME, dialect, outcome);
        if let Ok(Unsealed::Complete(introduction)) = introduction {
            self.learn_server(Some(&introduction));
            let first = introduction.to_unshared();
            self.conversation.introduction.get_or_insert(first);
        }
    }

    fn learn_server(&mut self, result: Option<&Json>) {
        if self.conversation.server_info.is_none() {
            let meta = result.and_then(meta_of);
            let server = meta.and_then(|meta| meta.server_info().ok().flatten());
            self.conversation.server_info = server;
        }
    }

    fn learn_client(&mut self, capabilities: Option<Json>) {
        if self.conversation.client_capabilities.is_none() {
            let declared = capabilities.and_then(|declared| declared.decode().ok());
            self.conversation.client_capabilities = declared;
        }
    }

    fn notification(&mut self, place: Place, notification: Notification) {
        match &*notification.method {
            "notifications/cancelled" => {}
            "notifications/subscriptions/acknowledged" => {
                if let Some(listen) = self.listen_of(place, &notification) {
                    self.requests[listen].acknowledged = Some(place.at);
                }
            }
            method if CHANGES.contains(&method) => self.change(place, &notification),
            "notifications/progress" => {
                let token = notification.params.as_ref().and_then(progress_token);
                let request = token.and_then(|token| self.by_token.get(&(place.scope, token)));
                let draft = request.and_then(|&request| self.requests[request].purpose.draft());
                if let Some(draft) = draft {
                    self.drafts[draft].notify(place.at, unshared(notification));
                }
            }
            _ => {
                if let Some(draft) = self.draft_in_progress(place) {
                    self.drafts[draft].notify(place.at, unshared(notification));
                }
            }
        }
    }

    fn change(&mut self, place: Place, notification: &Notification) {
        let (group, since) = match self.listen_of(place, notification) {
            Some(listen) => {
                let listen = &self.requests[listen];
                let Purpose::Listen { group, .. } = listen.purpose else {
                    return;
                };
                (group, listen.acknowledged.unwrap_or(place.at))
            }
            None => {
                let changes = &mut self.conversation.changes;
                let handshake = self.negotiated.entry(place.scope);
                let handshake = handshake.or_insert_with(|| Handshake {
                    dialect: latest_legacy(),
                    at: place.at,
                    group: None,
                });
                let group = *handshake.group.get_or_insert_with(|| {
                    changes.push(ChangeGroup::default());
                    changes.len() - 1
                });
                (group, handshake.at)
            }
        };
        let params = notification.params.as_ref();
        let uri = params.and_then(|params| pick_one(params, "uri"));
        self.conversation.changes[group].changes.push(Change {
            after: place.at.saturating_sub(since),
            method: notification.method.clone(),
            uri: uri.and_then(|uri| uri.decode().ok()),
            params: params.map_or_else(Json::empty_object, |it| bare_params(it).to_unshared()),
        });
    }

    /// Returns the open subscription that a notification belongs to.
    fn listen_of(&self, place: Place, notification: &Notification) -> Option<usize> {
        let meta = notification.params.as_ref().and_then(meta_of);
        let id = meta.and_then(|meta| meta.subscription_id().ok().flatten());
        let by_id = id.and_then(|id| self.open.get(&(place.scope, id)));
        let by_id = by_id.and_then(|requests| self.select(place, requests));
        let by_exchange = || self.by_exchange.get(&place.exchange?).copied();
        let request = by_id.or_else(by_exchange)?;
        matches!(self.requests[request].purpose, Purpose::Listen { .. }).then_some(request)
    }

    /// Returns the draft that a message without a reference belongs to.
    fn draft_in_progress(&self, place: Place) -> Option<usize> {
        let of_exchange = self.request_of_exchange(place);
        let of_exchange = of_exchange.and_then(|request| request.purpose.draft());
        of_exchange.or_else(|| {
            let open = self.open_drafts.get(&place.scope)?;
            self.requests[*open.last()?].purpose.draft()
        })
    }

    fn request_of_exchange(&self, place: Place) -> Option<&OpenRequest> {
        let request = self.by_exchange.get(&place.exchange?)?;
        self.requests.get(*request)
    }

    /// Selects among open requests with the same id: the one of the same exchange, or else the last one.
    fn select(&self, place: Place, requests: &[usize]) -> Option<usize> {
        let is_here = |&&request: &&usize| self.requests[request].exchange == place.exchange;
        requests.iter().find(is_here).or(requests.last()).copied()
    }

    fn take_open(&mut self, place: Place, id: &RequestId) -> Option<usize> {
        let key = (place.scope, id.clone());
        let request = self.select(place, self.open.get(&key)?)?;
        let same_id = self.open.get_mut(&key)?;
        same_id.retain(|&other| other != request);
        if same_id.is_empty() {
            self.open.remove(&key);
        }
        let open = self.open_drafts.get_mut(&self.requests[request].scope);
        open.map(|open| open.remove(&request));
        Some(request)
    }

    fn end_exchange(&mut self, place: Place, by: EndedBy, is_complete: bool) {
        let Some(request) = self.request_of_exchange(place) else {
            return;
        };
        let (id, dialect, purpose) = (request.id.clone(), request.dialect, request.purpose);
        let exchange = place.exchange.unwrap_or_default();
        let head = self.heads.remove(&exchange).unwrap_or_default();
        let failed = head.status.filter(|&status| status >= 400 && is_complete);
        let is_cancel = by == EndedBy::Client && !is_complete && dialect.is_modern();
        if failed.is_none() && !is_cancel {
            return;
        }
        // An exchange whose request has been answered is not open.
        let open = self.open.get(&(place.scope, id.clone()));
        let is_open = open.is_some_and(|requests| {
            requests.iter().any(|&it| self.requests[it].exchange == Some(exchange))
        });
        if !is_open || self.take_open(place, &id).is_none() {
            return;
        }
        let Some(draft) = purpose.draft() else { return };
        match failed {
            None => self.drafts[draft].cancel(place.at),
            Some(status) => {
                let why = format!("the recorded server answered with HTTP status {status}");
                self.drafts[draft].fail(place.at, RpcError::internal(why));
            }
        }
    }

    fn dialect_of(&self, place: Place, meta: Option<&Meta>) -> &'static Dialect {
        if let Some(version) = meta.and_then(|meta| meta.protocol_version().ok().flatten()) {
            return Dialect::of(version.as_str()).unwrap_or(Dialect::LATEST);
        }
        let head = place.exchange.and_then(|exchange| self.heads.get(&exchange));
        let header = head.and_then(|head| head.version);
        let negotiated = || self.negotiated.get(&place.scope).map(|it| it.dialect);
        header.or_else(negotiated).unwrap_or_else(latest_legacy)
    }

    fn finish(mut self) -> Conversation {
        let is_kept = |draft: &Draft| {
            let script = &draft.script;
            let is_error = matches!(&script.ending, Ending::Answer { outcome: Err(_), .. });
            script.method != SubscriptionsListenRequest::NAME || is_error
        };
        let kept = self.drafts.into_iter().filter(is_kept);
        self.conversation.scripts = kept.map(|draft| draft.script).collect();
        self.conversation
    }
}

impl Purpose {
    fn draft(self) -> Option<usize> {
        match self {
            Self::Call { draft } | Self::Listen { draft, .. } => Some(draft),
            Self::Handshake | Self::Discover | Self::Internal => None,
        }
    }
}

/// Returns the messages of a line: one, or those of a batch. What is not a message is skipped.
fn messages(json: &Json) -> Vec<Message> {
    let parts = match json.as_str().trim_start().starts_with('[') {
        true => json.decode::<Vec<Json>>().unwrap_or_default(),
        false => vec![json.clone()],
    };
    let decode = |part: Json| Message::decode(&part.into_bytes()).ok();
    parts.into_iter().filter_map(decode).collect()
}

fn unshared(mut notification: Notification) -> Notification {
    notification.params = notification.params.map(|params| params.to_unshared());
    notification
}

fn pick_one(json: &Json, member: &str) -> Option<Json> {
    let [member] = pick(json, [member]).ok()?;
    member
}

fn meta_of(params: &Json) -> Option<Meta> {
    pick_one(params, "_meta")?.decode().ok()
}

fn progress_token(params: &Json) -> Option<ProgressToken> {
    pick_one(params, "progressToken")?.decode().ok()
}

fn cancelled_id(notification: &Notification) -> Option<RequestId> {
    pick_one(notification.params.as_ref()?, "requestId")?.decode().ok()
}

fn negotiated_version(result: &Json) -> Option<&'static Dialect> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Negotiated {
        protocol_version: String,
    }
    let negotiated: Negotiated = result.decode().ok()?;
    Dialect::of(&negotiated.protocol_version)
}

fn version_header(headers: &[HttpHeader]) -> Option<&'static Dialect> {
    let mut headers = headers.iter();
    let HttpHeader(_, version) =
        headers.find(|HttpHeader(name, _)| name.eq_ignore_ascii_case("mcp-protocol-version"))?;
    Dialect::of(version)
}

fn latest_legacy() -> &'static Dialect {
    Dialects::all().latest_legacy().unwrap_or(Dialect::LATEST)
}

/// The notifications that subscriptions are about.
const CHANGES: [&str; 5] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/tasks",
];
