//! Matching of events: which exchange a message belongs to, and what it changes.

use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use bowline_core::era::is_modern_version;
use bowline_core::http::headers::name_member;
use bowline_core::{Message, Notification, RawRequest, Response, decode_batch, is_batch};
use bowline_types::{Json, ProtocolVersion, RequestId, meta_key};

use super::{
    Answer, Cancel, CancelForm, Entry, EntryKind, Exchange, ExchangeNotification, ExchangeState,
    HttpEnd, HttpExchange, Retention, Scope, Timeline, member, text_member,
};
use crate::{EndedBy, Event, EventKind, Side};

/// Where a message was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    line: usize,
    at: Duration,
    connection: u64,
    http: Option<u64>,
    from: Side,
}

/// The exchange and the kind of an entry.
struct Matched {
    exchange: Option<usize>,
    kind: EntryKind,
}

impl Matched {
    fn new(exchange: impl Into<Option<usize>>, kind: EntryKind) -> Self {
        let exchange = exchange.into();
        Self { exchange, kind }
    }
}

impl Timeline {
    pub(super) fn observe_event(&mut self, event: &Event) -> Vec<Entry> {
        let (from, matched) = match &event.kind {
            EventKind::Message { from, message } => return self.messages(event, *from, message),
            EventKind::Malformed { from, .. } => {
                let exchange = self.request_of_http(event.exchange);
                (Some(*from), Matched::new(exchange, EntryKind::Malformed))
            }
            EventKind::Open => (None, Matched::new(None, EntryKind::Opened)),
            EventKind::Close { by, .. } => {
                self.in_flight.remove(&event.connection);
                (None, Matched::new(None, EntryKind::Closed(*by)))
            }
            EventKind::Stderr { .. } => (Some(Side::Server), Matched::new(None, EntryKind::Stderr)),
            EventKind::Lost { .. } => (None, Matched::new(None, EntryKind::Lost)),
            EventKind::Request { .. } => {
                self.http_request(event);
                (
                    Some(Side::Client),
                    Matched::new(None, EntryKind::HttpRequest),
                )
            }
            EventKind::Response { .. } => {
                let exchange = self.http_response(event);
                (
                    Some(Side::Server),
                    Matched::new(exchange, EntryKind::HttpResponse),
                )
            }
            EventKind::End { by, complete } => {
                let from = match by {
                    EndedBy::Client => Some(Side::Client),
                    EndedBy::Server => Some(Side::Server),
                    EndedBy::Tap => None,
                };
                (from, self.http_end(event, *by, *complete))
            }
        };
        let version = self.version_of(event.connection, event.exchange, matched.exchange);
        vec![self.entry(event, from, version, matched)]
    }

    fn entry(
        &self,
        event: &Event,
        from: Option<Side>,
        version: Option<ProtocolVersion>,
        matched: Matched,
    ) -> Entry {
        Entry {
            event: self.events,
            line: event.line,
            at: event.at,
            connection: event.connection,
            http_exchange: event.exchange,
            from,
            exchange: matched.exchange,
            version,
            is_batched: false,
            kind: matched.kind,
        }
    }

    /// Observes one message, or each message of a batch.
    fn messages(&mut self, event: &Event, from: Side, json: &Json) -> Vec<Entry> {
        let seen = Seen {
            line: event.line,
            at: event.at,
            connection: event.connection,
            http: event.exchange,
            from,
        };
        let frame = json.clone().into_bytes();
        let is_batched = is_batch(&frame);
        let messages = match is_batched {
            false => vec![Message::decode(&frame)],
            true => decode_batch(&frame, MAX_BATCH).unwrap_or_else(|error| vec![Err(error.into())]),
        };
        let observe = |message| {
            let matched = match message {
                Ok(Message::Request(request)) => self.request(seen, request),
                Ok(Message::Response(response)) => self.answer(seen, response),
                Ok(Message::Notification(notification)) => self.notification(seen, notification),
                Err(_) => Matched::new(self.request_of_http(seen.http), EntryKind::Malformed),
            };
            let version = self.version_of(seen.connection, seen.http, matched.exchange);
            let mut entry = self.entry(event, Some(from), version, matched);
            entry.is_batched = is_batched;
            entry
        };
        messages.into_iter().map(observe).collect()
    }

    fn request(&mut self, seen: Seen, request: RawRequest) -> Matched {
        self.last_number += 1;
        let number = self.last_number;
        let params = request.params.map(Json::from);
        let version = params
            .as_ref()
            .and_then(|params| text_member(params, &["_meta", meta_key::PROTOCOL_VERSION]))
            .map(ProtocolVersion::from)
            .or_else(|| self.legacy_version(seen, &request.method, params.as_ref()));
        let progress_token = params
            .as_ref()
            .and_then(|params| member(params, &["_meta", meta_key::PROGRESS_TOKEN]))
            .and_then(|token| token.decode().ok());
        let name = params
            .as_ref()
            .and_then(|params| named(&request.method, params));
        let question_of = self.question_of(seen);
        let mut exchange = Exchange {
            number,
            connection: seen.connection,
            http_exchange: seen.http,
            session: self.session_of(seen.http),
            from: seen.from,
            line: seen.line,
            at: seen.at,
            id: request.id,
            method: request.method.into_owned(),
            name,
            params,
            progress_token,
            version,
            notifications: Vec::new(),
            notification_count: 0,
            questions: Vec::new(),
            question_of,
            answer: None,
            late_answers: Vec::new(),
            cancel: None,
            previous_leg: None,
            next_leg: None,
            acknowledged: None,
            http_end: None,
            state: ExchangeState::InFlight,
        };
        exchange.previous_leg = self.previous_leg(&exchange);
        self.link(&exchange);
        if self.retention == Retention::Recent {
            exchange.params = None;
        }
        self.exchanges.insert(number, exchange);
        Matched::new(number, EntryKind::Request)
    }

    /// Enters a new exchange into the tables, and links it to those it belongs to.
    fn link(&mut self, exchange: &Exchange) {
        let number = exchange.number;
        self.ids.add(exchange.from, &exchange.id, number);
        if let Some(token) = &exchange.progress_token {
            self.tokens.add(exchange.from, token, number);
        }
        let in_flight = self.in_flight.entry(exchange.connection).or_default();
        in_flight.insert(number);
        let parent = exchange.question_of;
        if let Some(parent) = parent.and_then(|parent| self.exchanges.get_mut(&parent)) {
            parent.questions.push(number);
        }
        let before = exchange.previous_leg;
        if let Some(before) = before.and_then(|before| self.exchanges.get_mut(&before)) {
            before.next_leg = Some(number);
        }
        let carrier = exchange.http_exchange;
        if let Some(http) = carrier.and_then(|http| self.http.get_mut(&http))
            && exchange.from == Side::Client
        {
            http.requests.push(number);
        }
    }

    fn answer(&mut self, seen: Seen, response: Response) -> Matched {
        let asker = seen.from.other();
        let Response { id, outcome } = response;
        let found = match &id {
            Some(id) => self.find(asker, id, seen),
            // An error without an id answers the request of its HTTP exchange, if there is one.
            None => self.request_of_http(seen.http),
        };
        let Some(number) = found else {
            return Matched::new(None, EntryKind::UnmatchedAnswer);
        };
        let is_recent = self.retention == Retention::Recent;
        let Some(exchange) = self.exchanges.get_mut(&number) else {
            return Matched::new(None, EntryKind::UnmatchedAnswer);
        };
        let mut answer = Answer {
            line: seen.line,
            at: seen.at,
            id,
            http_exchange: seen.http,
            outcome,
        };
        if let Some(cancel) = &mut exchange.cancel {
            cancel.last_seen = Some(seen.at);
        }
        if exchange.answer.is_some() || exchange.cancel.is_some() {
            if is_recent {
                answer.outcome = Ok(Json::null());
            }
            exchange.late_answers.push(answer);
            return Matched::new(number, EntryKind::LateAnswer);
        }
        exchange.state = state_of(&answer);
        let opened_leg = leg_key_of_answer(exchange, &answer);
        let version = match (exchange.method.as_str(), &answer.outcome) {
            ("initialize", Ok(result)) => text_member(result, &["protocolVersion"]),
            _ => None,
        };
        if is_recent {
            answer.outcome = answer.outcome.map(|_| Json::null());
        }
        exchange.answer = Some(answer);
        let connection = exchange.connection;
        if let Some(key) = opened_leg {
            self.open_legs.entry(key).or_default().push(number);
        }
        if let Some(version) = version {
            self.negotiate(number, version.into());
        }
        self.end(connection, number);
        Matched::new(number, EntryKind::Answer)
    }

    fn notification(&mut self, seen: Seen, notification: Notification) -> Matched {
        let Notification { method, params } = notification;
        if method == "notifications/cancelled" {
            return self.cancelled(seen, params.as_ref());
        }
        let number = self.owner(seen, &method, params.as_ref());
        let is_recent = self.retention == Retention::Recent;
        if let Some(exchange) = number.and_then(|number| self.exchanges.get_mut(&number)) {
            exchange.notification_count += 1;
            if method == "notifications/subscriptions/acknowledged" {
                exchange.acknowledged.get_or_insert(seen.at);
            }
            if let Some(cancel) = &mut exchange.cancel {
                cancel.last_seen = Some(seen.at);
            }
            if !is_recent {
                exchange.notifications.push(ExchangeNotification {
                    line: seen.line,
                    at: seen.at,
                    method: method.clone().into_owned(),
                    params,
                });
            }
        }
        let method = method.into_owned();
        Matched::new(number, EntryKind::Notification { method })
    }

    /// Returns the exchange that a notification belongs to.
    fn owner(&self, seen: Seen, method: &str, params: Option<&Json>) -> Option<usize> {
        let asker = seen.from.other();
        let id_at = |path: &[&str]| -> Option<RequestId> { member(params?, path)?.decode().ok() };
        if method == "notifications/progress" {
            let token = id_at(&["progressToken"])?;
            let candidates = self.tokens.find(asker, &token);
            return self.nearest(candidates, seen, |exchange| {
                exchange.progress_token.as_ref() == Some(&token)
            });
        }
        if let Some(id) = id_at(&["_meta", meta_key::SUBSCRIPTION_ID]) {
            return self.find(asker, &id, seen);
        }
        if seen.http.is_some() {
            return self.request_of_http(seen.http);
        }
        match method {
            "notifications/message" => self.only_in_flight(seen),
            _ => None,
        }
    }

    fn cancelled(&mut self, seen: Seen, params: Option<&Json>) -> Matched {
        let id = params.and_then(|params| member(params, &["requestId"]));
        let id: Option<RequestId> = id.and_then(|id| id.decode().ok());
        let Some(id) = id else {
            return Matched::new(None, EntryKind::Cancel);
        };
        let own = self.find(seen.from, &id, seen);
        // A server ends a subscription of the client with the same notification.
        let subscription = || {
            let other = self.find(seen.from.other(), &id, seen)?;
            let is_subscription = self.exchanges.get(&other)?.is_subscription();
            is_subscription.then_some(other)
        };
        let Some(number) = own.or_else(subscription) else {
            return Matched::new(None, EntryKind::Cancel);
        };
        let form = match seen.http.is_some() && seen.from == Side::Client {
            true => CancelForm::PostedFrame,
            false => CancelForm::Frame,
        };
        let reason = params.and_then(|params| text_member(params, &["reason"]));
        self.cancel(number, seen, form, reason)
    }

    fn cancel(
        &mut self,
        number: usize,
        seen: Seen,
        form: CancelForm,
        reason: Option<String>,
    ) -> Matched {
        let Some(exchange) = self.exchanges.get_mut(&number) else {
            return Matched::new(None, EntryKind::Cancel);
        };
        if exchange.answer.is_some() || exchange.cancel.is_some() {
            return Matched::new(number, EntryKind::LateCancel);
        }
        exchange.state = ExchangeState::Cancelled;
        exchange.cancel = Some(Cancel {
            line: seen.line,
            at: seen.at,
            by: seen.from,
            form,
            reason,
            last_seen: None,
        });
        let connection = exchange.connection;
        self.end(connection, number);
        Matched::new(number, EntryKind::Cancel)
    }

    /// Removes an exchange from those in flight.
    fn end(&mut self, connection: u64, number: usize) {
        self.settle(connection, number);
        if self.retention == Retention::Recent {
            self.ended.push_back(number);
        }
    }

    fn http_request(&mut self, event: &Event) {
        let (
            Some(number),
            EventKind::Request {
                method,
                path,
                headers,
            },
        ) = (event.exchange, &event.kind)
        else {
            return;
        };
        let http = HttpExchange {
            connection: event.connection,
            line: event.line,
            at: event.at,
            method: method.clone(),
            path: path.clone(),
            request_headers: headers.clone(),
            responded: None,
            response_line: None,
            status: None,
            response_headers: Vec::new(),
            requests: Vec::new(),
            end: None,
        };
        // The first event of a number counts; a second one is a defect of the recording.
        self.http.entry(number).or_insert(http);
    }

    fn http_response(&mut self, event: &Event) -> Option<usize> {
        let http = self.http.get_mut(&event.exchange?)?;
        if let EventKind::Response { status, headers } = &event.kind {
            http.responded = Some(event.at);
            http.response_line = Some(event.line);
            http.status = Some(*status);
            http.response_headers = headers.clone();
        }
        let session = http.session().map(str::to_owned);
        for number in http.requests.clone() {
            if let Some(exchange) = self.exchanges.get_mut(&number) {
                exchange.session = session.clone();
            }
        }
        self.request_of_http(event.exchange)
    }

    /// Ends an HTTP request. If the client closed the response of a modern request, that is a cancel.
    fn http_end(&mut self, event: &Event, by: EndedBy, is_complete: bool) -> Matched {
        let end = HttpEnd {
            line: event.line,
            at: event.at,
            by,
            is_complete,
        };
        let http = event.exchange.and_then(|number| self.http.get_mut(&number));
        let Some(http) = http else {
            return Matched::new(None, EntryKind::HttpEnd);
        };
        http.end = Some(end);
        let status = http.status;
        let requests = http.requests.clone();
        let mut matched = Matched::new(requests.first().copied(), EntryKind::HttpEnd);
        for number in requests {
            let Some(exchange) = self.exchanges.get_mut(&number) else {
                continue;
            };
            exchange.http_end = Some(end);
            if let Some(cancel) = &mut exchange.cancel {
                cancel.last_seen = Some(event.at);
                continue;
            }
            if exchange.state != ExchangeState::InFlight {
                continue;
            }
            if by == EndedBy::Client && !is_complete && exchange.is_modern() {
                let seen = Seen {
                    line: event.line,
                    at: event.at,
                    connection: event.connection,
                    http: event.exchange,
                    from: Side::Client,
                };
                matched = self.cancel(number, seen, CancelForm::ClosedStream, None);
            } else if let Some(status) = status.filter(|status| *status >= 400) {
                exchange.state = ExchangeState::Refused(status);
                let connection = exchange.connection;
                self.end(connection, number);
            }
        }
        if self.retention == Retention::Recent
            && let Some(number) = event.exchange
        {
            self.http.remove(&number);
        }
        matched
    }

    /// Finds the exchange with this id that `seen` belongs to, preferring one without an answer.
    fn find(&self, from: Side, id: &RequestId, seen: Seen) -> Option<usize> {
        let verbatim = self.nearest(self.ids.find(from, id), seen, |it| it.id == *id);
        verbatim.or_else(|| self.nearest(self.ids.find(from, id), seen, |_| true))
    }

    /// Returns the candidate that is nearest to `seen`: in flight, then in the same HTTP request, then in the same
    /// session, then the newest.
    fn nearest(
        &self,
        candidates: impl Iterator<Item = usize>,
        seen: Seen,
        is_it: impl Fn(&Exchange) -> bool,
    ) -> Option<usize> {
        let session = self.session_of(seen.http);
        let mut best: Option<(u8, usize)> = None;
        for number in candidates {
            let Some(exchange) = self.exchanges.get(&number) else {
                continue;
            };
            if !is_it(exchange) {
                continue;
            }
            let Some(nearness) = nearness(exchange, seen, session.as_deref()) else {
                continue;
            };
            let open = exchange.answer.is_none() && exchange.cancel.is_none();
            let rank = nearness + if open { 10 } else { 0 };
            if best.is_none_or(|(before, _)| rank > before) {
                best = Some((rank, number));
            }
        }
        best.map(|(_, number)| number)
    }

    /// Returns the client's request that an HTTP request carried.
    fn request_of_http(&self, http: Option<u64>) -> Option<usize> {
        let http = self.http.get(&http?)?;
        http.requests.first().copied()
    }

    /// Returns the only request of the other side in flight on a connection.
    fn only_in_flight(&self, seen: Seen) -> Option<usize> {
        let numbers = self.in_flight.get(&seen.connection)?;
        let asker = seen.from.other();
        let is_of_asker = |number: &&usize| {
            let exchange = self.exchanges.get(*number);
            exchange.is_some_and(|it| it.from == asker && !it.is_subscription())
        };
        // Two are enough to know that there is no single one.
        let mut numbers = numbers.iter().rev().take(MAX_SEARCHED).filter(is_of_asker);
        match (numbers.next(), numbers.next()) {
            (Some(only), None) => Some(*only),
            _ => None,
        }
    }

    /// Returns the exchange that a request of the server is about.
    fn question_of(&self, seen: Seen) -> Option<usize> {
        match (seen.from, seen.http) {
            (Side::Client, _) => None,
            (Side::Server, Some(_)) => self.request_of_http(seen.http),
            (Side::Server, None) => self.only_in_flight(seen),
        }
    }

    fn session_of(&self, http: Option<u64>) -> Option<String> {
        let http = self.http.get(&http?)?;
        http.session().map(str::to_owned)
    }

    fn legacy_version(
        &self,
        seen: Seen,
        method: &str,
        params: Option<&Json>,
    ) -> Option<ProtocolVersion> {
        if method == "initialize" {
            return text_member(params?, &["protocolVersion"]).map(Into::into);
        }
        self.version_of(seen.connection, seen.http, None)
    }

    /// Returns the version of an exchange, or else that of a connection or session.
    fn version_of(
        &self,
        connection: u64,
        http: Option<u64>,
        exchange: Option<usize>,
    ) -> Option<ProtocolVersion> {
        let own = exchange.and_then(|number| self.exchanges.get(&number)?.version.clone());
        let of_header = || {
            let http = self.http.get(&http?)?;
            let version = http.request_header("mcp-protocol-version")?;
            Some(ProtocolVersion::from(version.trim().to_owned()))
        };
        let of_session = || {
            let session = Scope::Session(self.session_of(http)?);
            self.negotiated.get(&session).cloned()
        };
        let of_connection = || {
            let connection = Scope::Connection(connection);
            self.negotiated.get(&connection).cloned()
        };
        own.or_else(of_header)
            .or_else(of_session)
            .or_else(of_connection)
    }

    /// Remembers the version that a handshake has chosen. A modern version is never negotiated like this.
    fn negotiate(&mut self, number: usize, version: ProtocolVersion) {
        let Some(exchange) = self.exchanges.get_mut(&number) else {
            return;
        };
        if is_modern_version(version.as_str()) {
            return;
        }
        exchange.version = Some(version.clone());
        let scope = match &exchange.session {
            Some(session) => Scope::Session(session.clone()),
            None => Scope::Connection(exchange.connection),
        };
        self.negotiated.insert(scope, version);
    }

    /// Returns the exchange whose `input_required` this request answers.
    fn previous_leg(&mut self, exchange: &Exchange) -> Option<usize> {
        let key = leg_key_of_retry(exchange)?;
        let numbers = self.open_legs.get_mut(&key)?;
        let number = numbers.pop();
        if numbers.is_empty() {
            self.open_legs.remove(&key);
        }
        number
    }
}

/// Returns how near an exchange is to a message, or `None` if the message cannot belong to it.
fn nearness(exchange: &Exchange, seen: Seen, session: Option<&str>) -> Option<u8> {
    match (seen.http, exchange.http_exchange) {
        (None, None) => (seen.connection == exchange.connection).then_some(1),
        (Some(seen), Some(own)) if seen == own => Some(3),
        // A modern request is answered and cancelled on its own HTTP request only.
        (Some(_), Some(_)) if exchange.is_modern() => None,
        (Some(_), Some(_)) => match (session, exchange.session.as_deref()) {
            (Some(one), Some(other)) => (one == other).then_some(2),
            (None, None) => Some(1),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the tool, prompt, resource or task that a request names.
fn named(method: &str, params: &Json) -> Option<String> {
    let path: &[&str] = match method {
        "resources/subscribe" | "resources/unsubscribe" => &["uri"],
        "tasks/result" => &["taskId"],
        "completion/complete" => {
            return ["name", "uri"]
                .iter()
                .find_map(|name| text_member(params, &["ref", name]));
        }
        _ => &[name_member(method)?],
    };
    text_member(params, path)
}

fn state_of(answer: &Answer) -> ExchangeState {
    let result = match &answer.outcome {
        Ok(result) => result,
        Err(error) => return ExchangeState::Failed(error.code.0),
    };
    if text_member(result, &["resultType"]).as_deref() == Some("input_required") {
        return ExchangeState::InputRequired;
    }
    match member(result, &["isError"]) {
        Some(is_error) if is_error.as_str() == "true" => ExchangeState::ToolError,
        _ => ExchangeState::Answered,
    }
}

/// Returns the key by which a retry of this exchange is found: its state, or else what it calls.
fn leg_key_of_answer(exchange: &Exchange, answer: &Answer) -> Option<u64> {
    if exchange.state != ExchangeState::InputRequired {
        return None;
    }
    let result = answer.outcome.as_ref().ok()?;
    let method = exchange.method.as_str();
    Some(match text_member(result, &["requestState"]) {
        Some(state) => hash((method, "state", state)),
        None => hash((method, "name", exchange.name.as_deref())),
    })
}

fn leg_key_of_retry(exchange: &Exchange) -> Option<u64> {
    let params = exchange.params.as_ref()?;
    let method = exchange.method.as_str();
    if let Some(state) = text_member(params, &["requestState"]) {
        return Some(hash((method, "state", state)));
    }
    member(params, &["inputResponses"])?;
    Some(hash((method, "name", exchange.name.as_deref())))
}

fn hash(value: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The number of messages of a batch that are looked at.
const MAX_BATCH: usize = 10_000;

/// The number of exchanges in flight that are searched for the request that a message is about.
const MAX_SEARCHED: usize = 64;
