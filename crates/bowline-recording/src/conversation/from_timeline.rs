//! Makes a [`Conversation`] of the [`Timeline`] of a recording.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bowline_core::era::{Dialect, Dialects, Unsealed, unseal};
use bowline_core::input::{RawInputRequest, may_need_input};
use bowline_core::{Message, Notification, Outcome};
use bowline_types::{Json, RpcError, meta_key};

use super::draft::{Answered, Draft};
use super::{Change, ChangeGroup, Conversation, RequestKey, bare_params};
use crate::timeline::{member, text_member};
use crate::{EntryKind, EventKind, Exchange, ExchangeState, Recording, Side, Timeline};

pub(super) fn conversation(recording: &Recording) -> Conversation {
    let timeline = Timeline::of(recording);
    let mut conversation = Conversation::default();
    let (questions, legs) = (questions(&timeline), Legs::of(&timeline));
    for exchange in timeline.exchanges() {
        if exchange.from != Side::Client {
            continue;
        }
        conversation.learn(exchange);
        if legs.is_retry(exchange) {
            continue; // a part of the script of its first leg
        }
        match exchange.method.as_str() {
            "initialize" | "server/discover" => conversation.introduce(exchange),
            // The transports of a mock answer these themselves.
            "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
                if !dialect_of(exchange).is_modern() => {}
            "subscriptions/listen" if !is_refused(exchange) => {
                conversation.changes.push(subscription(exchange));
            }
            _ => {
                let legs = legs.from(&timeline, exchange);
                let script = draft(&timeline, &legs, &questions).into_script();
                conversation.scripts.push(script);
            }
        }
    }
    let unsolicited = unsolicited_changes(recording, &timeline);
    conversation.changes.extend(unsolicited);
    conversation
}

impl Conversation {
    /// Learns what a client and a server say about themselves.
    fn learn(&mut self, exchange: &Exchange) {
        let params = exchange.params.as_ref();
        if self.client_capabilities.is_none() {
            let path: &[&str] = match exchange.method.as_str() {
                "initialize" => &["capabilities"],
                _ => &["_meta", meta_key::CLIENT_CAPABILITIES],
            };
            let declared = params.and_then(|params| member(params, path));
            self.client_capabilities = declared.and_then(|it| it.decode().ok());
        }
        if self.server_info.is_none() {
            let path: &[&str] = match exchange.method.as_str() {
                "initialize" => &["serverInfo"],
                _ => &["_meta", meta_key::SERVER_INFO],
            };
            let answer = exchange.answer.as_ref();
            let result = answer.and_then(|answer| answer.outcome.as_ref().ok());
            let server = result.and_then(|result| member(result, path));
            self.server_info = server.and_then(|it| it.decode().ok());
        }
    }

    fn introduce(&mut self, exchange: &Exchange) {
        let Some(answer) = &exchange.answer else {
            return;
        };
        let dialect = match exchange.method.as_str() {
            "initialize" => latest_legacy(),
            _ => dialect_of(exchange),
        };
        let introduction = unseal("server/discover", dialect, answer.outcome.clone());
        if let Ok(Unsealed::Complete(introduction)) = introduction {
            let introduction = introduction.to_unshared();
            self.introduction.get_or_insert(introduction);
        }
    }
}

/// Returns the version of a request; the latest legacy one if it is not known.
fn dialect_of(exchange: &Exchange) -> &'static Dialect {
    let version = exchange.version.as_ref();
    let known = version.and_then(|version| Dialect::of(version.as_str()));
    known.unwrap_or_else(|| match exchange.is_modern() {
        true => Dialect::LATEST,
        false => latest_legacy(),
    })
}

fn latest_legacy() -> &'static Dialect {
    Dialects::all().latest_legacy().unwrap_or(Dialect::LATEST)
}

/// The retries of multi round-trip requests.
///
/// A [`Timeline`] links them by the name of the tool where there is no state, which is not enough to tell concurrent
/// calls of one tool apart.
#[derive(Default)]
struct Legs {
    /// The next leg of an exchange.
    next: BTreeMap<usize, usize>,
    retries: BTreeSet<usize>,
}

impl Legs {
    fn of(timeline: &Timeline) -> Self {
        let mut legs = Self::default();
        let mut waiting: BTreeMap<RequestKey, VecDeque<&Exchange>> = BTreeMap::new();
        for exchange in timeline.exchanges() {
            let Some(params) = exchange.params.as_ref() else {
                continue;
            };
            if exchange.from != Side::Client || !may_need_input(&exchange.method) {
                continue;
            }
            let key = RequestKey::new(&exchange.method, params);
            let is_retry = ["inputResponses", "requestState"]
                .iter()
                .any(|name| member(params, &[name]).is_some());
            if is_retry && let Some(open) = waiting.get_mut(&key) {
                let first = open.iter().position(|it| is_continued(it, exchange));
                if let Some(before) = first.and_then(|first| open.remove(first)) {
                    legs.next.insert(before.number, exchange.number);
                    legs.retries.insert(exchange.number);
                }
            }
            if exchange.state == ExchangeState::InputRequired {
                waiting.entry(key).or_default().push_back(exchange);
            }
        }
        legs
    }

    fn is_retry(&self, exchange: &Exchange) -> bool {
        self.retries.contains(&exchange.number)
    }

    /// Returns an exchange and the legs after it.
    fn from<'a>(&self, timeline: &'a Timeline, first: &'a Exchange) -> Vec<&'a Exchange> {
        let mut legs = vec![first];
        let mut last = first.number;
        // A leg is always linked to a later exchange, so that this ends.
        while let Some(&next) = self.next.get(&last) {
            legs.extend(timeline.exchange(next));
            last = next;
        }
        legs
    }
}

/// Returns whether a request with the same key continues an exchange: it was sent after its answer, with its state.
fn is_continued(exchange: &Exchange, retry: &Exchange) -> bool {
    let Some(answer) = &exchange.answer else {
        return false;
    };
    let result = answer.outcome.as_ref().ok();
    let expected = result.and_then(|result| text_member(result, &["requestState"]));
    let params = retry.params.as_ref();
    let state = params.and_then(|params| text_member(params, &["requestState"]));
    answer.at <= retry.at && expected == state
}

/// Something that happened between a request and its answer.
enum Happening<'a> {
    Notified(Notification),
    Asked(&'a Exchange),
    Answered(&'a Exchange),
}

/// Reads all legs of a request.
fn draft(
    timeline: &Timeline,
    legs: &[&Exchange],
    questions: &BTreeMap<usize, Vec<usize>>,
) -> Draft {
    let first = legs.first().expect("a request is its own first leg");
    let params = first.params.clone().unwrap_or_else(Json::empty_object);
    let method = Cow::Owned(first.method.clone());
    let mut draft = Draft::new(method, &params, dialect_of(first), first.at);
    for (at, leg) in legs.iter().enumerate() {
        if at > 0 {
            let responses = leg.params.as_ref();
            let responses = responses.and_then(|params| member(params, &["inputResponses"]));
            draft.resume(leg.at, responses.as_ref());
        }
        let own_questions = questions.get(&leg.number).map_or(&[][..], Vec::as_slice);
        play(timeline, leg, own_questions, &mut draft);
        if end(leg, &mut draft) == Answered::Finally {
            break;
        }
    }
    draft
}

/// Adds the notifications and questions of one leg.
fn play(timeline: &Timeline, leg: &Exchange, questions: &[usize], draft: &mut Draft) {
    let mut happenings: Vec<(Duration, usize, Happening<'_>)> = Vec::new();
    for seen in &leg.notifications {
        if !CHANGES.contains(&seen.method.as_str()) {
            let params = seen.params.as_ref().map(Json::to_unshared);
            let notification = Notification::new(seen.method.clone(), params);
            happenings.push((seen.at, seen.line, Happening::Notified(notification)));
        }
    }
    for question in questions
        .iter()
        .filter_map(|&number| timeline.exchange(number))
    {
        happenings.push((question.at, question.line, Happening::Asked(question)));
        if let Some(answer) = &question.answer {
            happenings.push((answer.at, answer.line, Happening::Answered(question)));
        }
    }
    happenings.sort_by_key(|&(at, line, _)| (at, line));
    let mut asked = BTreeMap::new();
    for (at, _, happening) in happenings {
        match happening {
            Happening::Notified(notification) => draft.notify(at, notification),
            Happening::Asked(question) => {
                let params = question.params.as_ref().map(Json::to_unshared);
                let request = RawInputRequest::from_request(&question.method, params);
                if let Some(request) = request {
                    asked.insert(question.number, draft.ask(at, request));
                }
            }
            Happening::Answered(question) => {
                let answer = question
                    .answer
                    .as_ref()
                    .map(|answer| answer.outcome.clone());
                if let (Some(place), Some(outcome)) = (asked.get(&question.number), answer) {
                    draft.answer_question(at, *place, unshared(outcome));
                }
            }
        }
    }
}

/// Adds the end of one leg.
fn end(leg: &Exchange, draft: &mut Draft) -> Answered {
    if let Some(answer) = &leg.answer {
        return draft.answer(answer.at, answer.outcome.clone());
    }
    if let Some(cancel) = &leg.cancel {
        draft.cancel(cancel.at);
    } else if let ExchangeState::Refused(status) = leg.state {
        let at = leg.http_end.map_or(leg.at, |end| end.at);
        let why = format!("the recorded server answered with HTTP status {status}");
        draft.fail(at, RpcError::internal(why));
    }
    Answered::Finally
}

/// Returns the questions of servers, by the request that each is about.
fn questions(timeline: &Timeline) -> BTreeMap<usize, Vec<usize>> {
    let mut questions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    // The requests of clients that a question may be about, in their order.
    let mut calls: Vec<&Exchange> = Vec::new();
    for exchange in timeline.exchanges() {
        if exchange.from == Side::Client {
            if may_need_input(&exchange.method) {
                calls.push(exchange);
            }
            continue;
        }
        let owner = exchange.question_of.or_else(|| {
            // It may be about any of several calls. The last one is the likeliest: it started the work.
            let mut recent = calls.iter().rev().take(MAX_SEARCHED);
            let owner = recent.find(|call| is_in_flight(call, exchange))?;
            Some(owner.number)
        });
        if let Some(owner) = owner {
            questions.entry(owner).or_default().push(exchange.number);
        }
    }
    questions
}

fn is_in_flight(call: &Exchange, question: &Exchange) -> bool {
    let is_near = call.http_exchange.is_some() || call.connection == question.connection;
    let end = call.duration().map(|duration| call.at + duration);
    is_near && end.is_none_or(|end| end >= question.at)
}

fn is_refused(exchange: &Exchange) -> bool {
    let answer = exchange.answer.as_ref();
    answer.is_some_and(|answer| answer.outcome.is_err())
}

/// Returns what a subscription was sent.
fn subscription(exchange: &Exchange) -> ChangeGroup {
    let params = exchange.params.as_ref();
    let filter = params.and_then(|params| member(params, &["notifications"]));
    let since = exchange.acknowledged.unwrap_or(exchange.at);
    let changes = exchange.notifications.iter();
    let changes = changes.filter(|it| CHANGES.contains(&it.method.as_str()));
    let change = |it: &crate::ExchangeNotification| {
        let method = Cow::Owned(it.method.clone());
        change(it.at.saturating_sub(since), method, it.params.as_ref())
    };
    ChangeGroup {
        filter: filter.and_then(|filter| filter.decode().ok()),
        changes: changes.map(change).collect(),
    }
}

/// Returns the changes that legacy servers announced outside of subscriptions, for each connection.
fn unsolicited_changes(recording: &Recording, timeline: &Timeline) -> Vec<ChangeGroup> {
    let mut groups: BTreeMap<u64, (Duration, ChangeGroup)> = BTreeMap::new();
    for entry in timeline.entries() {
        let EntryKind::Notification { method } = &entry.kind else {
            continue;
        };
        let owner = entry.exchange.and_then(|number| timeline.exchange(number));
        let is_subscribed = owner.is_some_and(Exchange::is_subscription);
        if entry.from != Some(Side::Server) || is_subscribed || !CHANGES.contains(&method.as_str())
        {
            continue;
        }
        let event = recording.events.get(entry.event).map(|event| &event.kind);
        let Some(EventKind::Message { message, .. }) = event else {
            continue;
        };
        // In a batch it is not known which one this is; batches are of one version only.
        let Ok(Message::Notification(notification)) =
            Message::decode(&message.clone().into_bytes())
        else {
            continue;
        };
        // Over HTTP the connections of one client differ.
        let scope = match entry.http_exchange {
            Some(_) => 0,
            None => entry.connection,
        };
        let (since, group) = groups.entry(scope).or_insert_with(|| {
            let group = ChangeGroup::default();
            (entry.at, group)
        });
        let after = entry.at.saturating_sub(*since);
        let params = notification.params.as_ref();
        group
            .changes
            .push(change(after, notification.method.clone(), params));
    }
    groups.into_values().map(|(_, group)| group).collect()
}

fn change(after: Duration, method: Cow<'static, str>, params: Option<&Json>) -> Change {
    let uri = params.and_then(|params| member(params, &["uri"]));
    Change {
        after,
        method,
        uri: uri.and_then(|uri| uri.decode().ok()),
        params: params.map_or_else(Json::empty_object, |it| bare_params(it).to_unshared()),
    }
}

fn unshared(outcome: Outcome) -> Outcome {
    outcome.map(|result| result.to_unshared())
}

/// The notifications that subscriptions are about.
const CHANGES: [&str; 5] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/tasks",
];
/// How many calls are searched for the one that a question is about.
const MAX_SEARCHED: usize = 1000;
