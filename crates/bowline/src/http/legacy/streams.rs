//! Which stream a message of the server goes onto, and how far each stream was read.
//!
//! ```text
//! answer to a request ─────────▶ the stream of its POST, which is over when all are answered
//! said or asked within one ────▶ the same
//! everything else ─────────────▶ the stream that a client may GET
//! ```
//!
//! No input or output: a message goes in, and whom to wake comes out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bowline_core::{Message, Response, other_spelling};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::by_key::ByKey;
use super::store::{After, EventStore};
use crate::limits::{Account, Limit};

/// The streams of one session.
pub(super) struct Streams {
    store: Box<dyn EventStore>,
    streams: ByKey<Stream>,
    /// Which stream each unanswered request of the client is answered on.
    by_request: BTreeMap<RequestId, u64>,
    /// Streams that are over and read by nobody, but may be read again, oldest first.
    over: VecDeque<u64>,
    last_key: u64,
    last_reader: u64,
    layout: Layout,
    /// Bytes of answers that wait until all answers of their POST are there.
    answer_bytes: usize,
    /// What the newest event added to the store.
    newest_bytes: usize,
    has_ended: bool,
    account: Arc<Account>,
}

/// How messages are spread over streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Each POST has a stream of its own.
    PerPost,
    /// Everything goes onto the one stream that the client got first.
    One,
}

/// The form that the response of a POST takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Either, depending on what comes first.
    Undecided,
    /// The answers as JSON, and nothing else.
    Json,
    /// A stream of events.
    Events,
}

#[derive(Debug)]
struct Stream {
    form: Form,
    /// How many requests are still to be answered on it.
    owed: usize,
    /// What is answered, until it is clear that these are events: JSON is read once, and not kept.
    answers: Vec<Bytes>,
    /// The place of the last event that was written.
    written: u64,
    /// The place of the last event that was read.
    read: u64,
    is_over: bool,
    reader: Option<u64>,
    waker: Option<Waker>,
}

/// What is next for one who reads a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Event { place: u64, frame: Bytes },
    Wait,
    End,
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CannotRead {
    /// Another response reads it.
    Taken,
    /// No event has that place, or its stream consists of no events.
    Unknown,
    /// What followed that place was not kept.
    Lost,
}

/// What became of a message.
#[derive(Debug, Default)]
pub(super) struct Routed {
    pub(super) wake: Option<Waker>,
    /// An answer of our own, to a question that cannot reach the client.
    pub(super) answer: Option<Message>,
}

impl Streams {
    pub(super) fn new(layout: Layout, store: Box<dyn EventStore>, account: Arc<Account>) -> Self {
        let unsolicited = Stream::new(Form::Events, 0);
        Self {
            store,
            streams: ByKey::of(UNSOLICITED, unsolicited),
            by_request: BTreeMap::new(),
            over: VecDeque::new(),
            last_key: UNSOLICITED,
            last_reader: 0,
            layout,
            answer_bytes: 0,
            newest_bytes: 0,
            has_ended: false,
            account,
        }
    }

    /// The first of these requests whose id an unanswered request has. Where all answers go onto one stream the engine
    /// finds that out.
    pub(super) fn find_in_flight<'a>(
        &self,
        mut requests: impl Iterator<Item = &'a RequestId>,
    ) -> Option<&'a RequestId> {
        if self.layout == Layout::One {
            return None;
        }
        requests.find(|id| self.by_request.contains_key(*id))
    }

    /// Whether a cancel with this id names a request that is not answered yet. Clients may spell it differently.
    pub(super) fn is_in_flight(&self, id: &RequestId) -> bool {
        let other = || other_spelling(id);
        self.by_request.contains_key(id)
            || other().is_some_and(|other| self.by_request.contains_key(&other))
    }

    /// Makes a stream for the answers to these requests, none of which is in flight, and for the answers that need no
    /// handler. Returns its key and its reader.
    ///
    /// The reader is there from the beginning: a GET that guesses the key must not come first.
    pub(super) fn open(
        &mut self,
        requests: impl IntoIterator<Item = RequestId>,
        form: Form,
        answers: Vec<Bytes>,
    ) -> (u64, u64) {
        self.last_key += 1;
        let key = self.last_key;
        let before = self.by_request.len();
        self.by_request
            .extend(requests.into_iter().map(|id| (id, key)));
        let mut stream = Stream::new(form, self.by_request.len() - before);
        self.last_reader += 1;
        stream.reader = Some(self.last_reader);
        stream.is_over = stream.owed == 0;
        self.streams.insert(key, stream);
        for answer in answers {
            self.keep(key, answer);
        }
        (key, self.last_reader)
    }

    /// Notes requests whose answers go onto the one stream that there is.
    pub(super) fn expect(&mut self, requests: impl IntoIterator<Item = RequestId>) {
        for id in requests {
            self.by_request.entry(id).or_insert(UNSOLICITED);
        }
    }

    /// Puts a message of the server onto its stream.
    pub(super) fn route(&mut self, within: Option<&RequestId>, message: &Message) -> Routed {
        let answered = match message {
            Message::Response(Response { id: Some(id), .. }) => self.by_request.remove(id),
            _ => None,
        };
        let is_answer = matches!(message, Message::Response(_));
        let key = match self.layout {
            Layout::One => UNSOLICITED,
            Layout::PerPost if is_answer => match answered {
                Some(key) => key,
                None => return Routed::default(), // it was cancelled, or could never be read
            },
            Layout::PerPost => within
                .and_then(|id| self.by_request.get(id).copied())
                .unwrap_or(UNSOLICITED),
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return Routed::default();
        };
        if stream.form == Form::Json && !is_answer {
            return Routed {
                wake: None,
                answer: cannot_ask(message),
            };
        }
        if is_answer && key != UNSOLICITED {
            stream.owed = stream.owed.saturating_sub(1);
            stream.is_over = stream.owed == 0;
        }
        if !is_answer {
            self.commit_to_events(key);
        }
        let frame = self.within_limit(key, message);
        self.keep(key, frame);
        let wake = self.streams.get_mut(key).and_then(|own| own.waker.take());
        self.retire(key);
        Routed { wake, answer: None }
    }

    /// The message as a frame, or a short error in its place if the answers to one POST get too long.
    fn within_limit(&self, key: u64, message: &Message) -> Bytes {
        let frame = message.to_frame();
        let waiting = self.streams.get(key).map_or(0, Stream::answer_bytes);
        let max = self.account.limits().output_bytes;
        match message {
            // The first is as long as it is, and an error in the place of a short one would be as long.
            Message::Response(response)
                if waiting > 0 && waiting + frame.len() > max && frame.len() > SHORT_ANSWER =>
            {
                let reached = self.account.meters().refuse(Limit::OutputBytes, max);
                let refusal = Response {
                    id: response.id.clone(),
                    outcome: Err(reached.into()),
                };
                Message::from(refusal).to_frame()
            }
            _ => frame,
        }
    }

    /// Ends the POST of a request that the client cancelled: something has to, and nothing else will.
    pub(super) fn cancelled(&mut self, id: &RequestId) -> Option<Waker> {
        if self.layout == Layout::One {
            self.by_request.remove(id);
            return None;
        }
        let terminator = Response {
            id: Some(id.clone()),
            outcome: Err(RpcError::new(ErrorCode::REQUEST_CANCELLED, "cancelled")),
        };
        self.route(None, &terminator.into()).wake
    }

    /// Lets a response read a stream from where the last one stopped, unless another reads it. Or from behind a place,
    /// which only a client that lost the stream can name: whichever response read it until then is at its end.
    pub(super) fn attach(
        &mut self,
        key: u64,
        after: Option<u64>,
    ) -> Result<(u64, Option<Waker>), CannotRead> {
        let known = if key > self.last_key {
            CannotRead::Unknown
        } else {
            CannotRead::Lost
        };
        let stream = self.streams.get_mut(key).ok_or(known)?;
        if stream.form != Form::Events || after.is_some_and(|place| place > stream.written) {
            return Err(CannotRead::Unknown);
        }
        if after.is_none() && stream.reader.is_some() {
            return Err(CannotRead::Taken);
        }
        let place = after.unwrap_or(stream.read);
        if after.is_some() && self.store.after(key, place) == After::Lost {
            return Err(CannotRead::Lost);
        }
        self.last_reader += 1;
        stream.read = place;
        stream.reader = Some(self.last_reader);
        let replaced = stream.waker.take();
        if stream.is_over {
            self.over.retain(|own| *own != key);
        }
        Ok((self.last_reader, replaced))
    }

    pub(super) fn detach(&mut self, key: u64, reader: u64) {
        if let Some(stream) = self
            .streams
            .get_mut(key)
            .filter(|own| own.is_read_by(reader))
        {
            stream.reader = None;
            stream.waker = None;
            self.retire(key);
        }
    }

    /// The next event for a reader; `waker` is woken when there may be one.
    pub(super) fn next(&mut self, key: u64, reader: u64, waker: &Waker) -> Next {
        let stream = self.streams.get_mut(key);
        let Some(stream) = stream.filter(|own| own.is_read_by(reader)) else {
            return Next::End;
        };
        match self.store.after(key, stream.read) {
            After::Event { place, frame } => {
                stream.read = place;
                Next::Event { place, frame }
            }
            After::Nothing if !stream.is_over => {
                stream.waker = Some(waker.clone());
                Next::Wait
            }
            After::Nothing => Next::End,
            // It reads more slowly than things happen; it may come back, and find out what it missed.
            After::Lost => Next::End,
        }
    }

    /// Which form a stream takes, if that is clear by now; `waker` is woken when it may be.
    pub(super) fn form(&mut self, key: u64, waker: &Waker) -> Form {
        let Some(stream) = self.streams.get_mut(key) else {
            return Form::Json;
        };
        match stream.form {
            Form::Undecided | Form::Json if stream.is_over => Form::Json,
            Form::Events => Form::Events,
            Form::Undecided | Form::Json => {
                stream.waker = Some(waker.clone());
                Form::Undecided
            }
        }
    }

    /// The head of the response is out: whatever comes now is an event.
    pub(super) fn commit_to_events(&mut self, key: u64) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.form = Form::Events;
        let answers = std::mem::take(&mut stream.answers);
        for answer in answers {
            self.answer_bytes -= answer.len();
            self.keep(key, answer);
        }
    }

    /// Takes the answers of a stream that is answered as JSON. It cannot be read again.
    pub(super) fn take_answers(&mut self, key: u64) -> Vec<Bytes> {
        self.remove(key)
            .map(|stream| stream.answers)
            .unwrap_or_default()
    }

    /// Keeps what is on a stream until it is read.
    fn keep(&mut self, key: u64, frame: Bytes) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        match stream.form {
            Form::Undecided | Form::Json => {
                self.answer_bytes += frame.len();
                stream.answers.push(frame);
            }
            Form::Events => {
                let before = self.store.bytes();
                stream.written = self.store.append(key, frame);
                // Less than it is if something older was lost, which only makes it easier to lose.
                self.newest_bytes = self.store.bytes().saturating_sub(before);
            }
        }
    }

    /// The place of the last event that was read, which is where a new reader would go on.
    pub(super) fn read_so_far(&self, key: u64) -> u64 {
        self.streams.get(key).map_or(0, |stream| stream.read)
    }

    /// The requests that are not answered yet.
    pub(super) fn unanswered(&self) -> impl ExactSizeIterator<Item = &RequestId> {
        self.by_request.keys()
    }

    /// How many bytes the kept events take up, and the streams that are kept for their sake.
    pub(super) fn event_bytes(&self) -> usize {
        self.store.bytes() + self.over.len() * PER_STREAM
    }

    /// How many bytes everything else takes up: answers, and the streams that are open.
    pub(super) fn output_bytes(&self) -> usize {
        let unsolicited = usize::from(self.streams.get(UNSOLICITED).is_some());
        let open = self.streams.len() - unsolicited - self.over.len();
        self.answer_bytes + open * PER_STREAM
    }

    /// Drops the oldest events until this many bytes are free, and returns how many events that were.
    pub(super) fn drop_events(&mut self, bytes: usize, keep: Keep) -> u64 {
        let kept = match keep {
            Keep::Newest => self.newest_bytes,
            Keep::Nothing => 0,
        };
        let enough = self.store.bytes().saturating_sub(bytes);
        let mut dropped = 0;
        while self.store.bytes() > enough.max(kept) && self.store.drop_oldest() {
            dropped += 1;
        }
        let over = std::mem::take(&mut self.over);
        let (kept, lost): (_, VecDeque<_>) =
            over.into_iter().partition(|key| self.has_events(*key));
        self.over = kept;
        for key in lost {
            self.remove(key);
        }
        dropped
    }

    /// Whether the last event of a stream is still kept.
    fn has_events(&self, key: u64) -> bool {
        let written = self.streams.get(key).map_or(0, |stream| stream.written);
        self.store.after(key, written.saturating_sub(1)) != After::Lost
    }

    /// Nothing more will come. Only what a response is reading is kept.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.has_ended = true;
        self.by_request.clear();
        self.over.clear();
        let mut wakers = Vec::new();
        for key in self.streams.keys().collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_over = true;
                wakers.extend(stream.waker.take());
            }
            self.retire(key);
        }
        wakers
    }

    /// Lets go of a stream that is over, once no response reads it: what is on it may not have been read yet.
    fn retire(&mut self, key: u64) {
        let is_done = |own: &&Stream| own.is_over && own.reader.is_none();
        let Some(stream) = self.streams.get(key).filter(is_done) else {
            return;
        };
        if stream.form != Form::Events || self.has_ended {
            self.remove(key);
            return;
        }
        self.over.push_back(key);
        if self.over.len() > MOST_OVER
            && let Some(oldest) = self.over.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: u64) -> Option<Stream> {
        let stream = self.streams.remove(key)?;
        self.answer_bytes -= stream.answer_bytes();
        self.store.forget(key);
        Some(stream)
    }
}

/// What is not dropped to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Newest,
    Nothing,
}

impl Stream {
    fn new(form: Form, owed: usize) -> Self {
        Self {
            form,
            owed,
            answers: Vec::new(),
            written: 0,
            read: 0,
            is_over: false,
            reader: None,
            waker: None,
        }
    }

    fn answer_bytes(&self) -> usize {
        self.answers.iter().map(Bytes::len).sum()
    }

    fn is_read_by(&self, reader: u64) -> bool {
        self.reader == Some(reader)
    }
}

/// What the server hears when its question has no way to the client. Failing at once beats waiting.
fn cannot_ask(message: &Message) -> Option<Message> {
    let Message::Request(asked) = message else {
        return None;
    };
    let why = "the client cannot be asked: its request is answered as JSON";
    let answer = Response {
        id: Some(asked.id.clone()),
        outcome: Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why)),
    };
    Some(answer.into())
}

/// The stream that a client may GET.
pub(super) const UNSOLICITED: u64 = 0;
/// How many streams that are over can still be read again.
const MOST_OVER: usize = 64;
/// An answer that an error in its place would not be shorter than.
pub(super) const SHORT_ANSWER: usize = 256;
/// What a stream takes up besides what is on it.
const PER_STREAM: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::legacy::store::MemoryStore;
    use crate::limits::Limits;
    use bowline_core::{Notification, RawRequest};
    use bowline_types::Json;

    fn streams() -> Streams {
        let account = Account::total(Limits::default());
        Streams::new(Layout::PerPost, Box::<MemoryStore>::default(), account)
    }

    /// A stream for the answers to these requests, and its reader.
    fn open(streams: &mut Streams, ids: impl IntoIterator<Item = i64>, form: Form) -> (u64, u64) {
        streams.open(ids.into_iter().map(RequestId::from), form, Vec::new())
    }

    /// The same, which nothing reads.
    fn unread(streams: &mut Streams, ids: impl IntoIterator<Item = i64>, form: Form) -> u64 {
        let (key, reader) = open(streams, ids, form);
        streams.detach(key, reader);
        key
    }

    fn answer(id: i64) -> Message {
        let outcome = Ok(Json::empty_object());
        let id = Some(id.into());
        Response { id, outcome }.into()
    }

    fn word() -> Message {
        Notification::new("word", None).into()
    }

    fn question() -> Message {
        let (method, params) = ("roots/list".into(), None);
        let id = 9.into();
        RawRequest { id, method, params }.into()
    }

    /// What is on a stream, to its end or to where it waits.
    fn read(streams: &mut Streams, key: u64) -> (Vec<Bytes>, Next) {
        let (reader, _) = streams.attach(key, Some(0)).unwrap();
        let mut frames = Vec::new();
        loop {
            match streams.next(key, reader, Waker::noop()) {
                Next::Event { frame, .. } => frames.push(frame),
                last => return (frames, last),
            }
        }
    }

    #[test]
    fn each_message_is_on_exactly_one_stream() {
        let mut streams = streams();
        let first = unread(&mut streams, [1], Form::Undecided);
        let second = unread(&mut streams, [2], Form::Events);

        streams.route(Some(&1.into()), &word());
        streams.route(None, &word());
        streams.route(Some(&2.into()), &answer(2));
        streams.route(Some(&1.into()), &answer(1));

        let frame = |message: Message| message.to_frame();
        assert_eq!(
            read(&mut streams, first),
            (vec![frame(word()), frame(answer(1))], Next::End)
        );
        assert_eq!(
            read(&mut streams, second),
            (vec![frame(answer(2))], Next::End)
        );
        assert_eq!(
            read(&mut streams, UNSOLICITED),
            (vec![frame(word())], Next::Wait)
        );
    }

    #[test]
    fn a_stream_is_over_when_all_its_requests_are_answered() {
        let mut streams = streams();
        let key = unread(&mut streams, [1, 2], Form::Events);

        streams.route(None, &answer(1));
        assert_eq!(read(&mut streams, key).1, Next::Wait);
        streams.route(None, &answer(2));

        assert_eq!(read(&mut streams, key).1, Next::End);
        assert_eq!(streams.unanswered().len(), 0);
    }

    #[test]
    fn an_answer_after_the_cancel_is_on_no_stream() {
        let mut streams = streams();
        let key = unread(&mut streams, [1], Form::Events);

        streams.cancelled(&1.into());
        streams.route(None, &answer(1));

        let (frames, _) = read(&mut streams, key);
        assert_eq!(frames.len(), 1);
        assert!(String::from_utf8_lossy(&frames[0]).contains("-32800"));
        assert!(read(&mut streams, UNSOLICITED).0.is_empty());
    }

    #[test]
    fn an_id_is_in_flight_until_it_is_answered_or_cancelled() {
        let mut streams = streams();
        open(&mut streams, [1, 2], Form::Events);
        let ids: [RequestId; 4] = ["1".into(), 3.into(), 2.into(), 1.into()];

        assert_eq!(streams.find_in_flight(ids.iter()), Some(&ids[2]));
        assert!(streams.is_in_flight(&ids[0]), "a cancel may spell it so");
        streams.route(None, &answer(1));
        streams.cancelled(&2.into());

        assert_eq!(streams.find_in_flight(ids.iter()), None);
        assert!(!streams.is_in_flight(&ids[0]));
    }

    #[test]
    fn a_stream_is_read_before_a_get_can_guess_its_key() {
        for form in [Form::Undecided, Form::Json, Form::Events] {
            let mut streams = streams();
            let (key, reader) = open(&mut streams, [1], form);

            assert!(streams.attach(key, None).is_err(), "{form:?}");
            assert!(streams.streams.get(key).unwrap().is_read_by(reader));
        }
    }

    #[test]
    fn only_places_of_events_can_be_named() {
        let mut streams = streams();
        let json = open(&mut streams, [1], Form::Json).0;
        let undecided = open(&mut streams, [2], Form::Undecided).0;
        let events = open(&mut streams, [3], Form::Events).0;
        streams.route(Some(&3.into()), &word());

        for (key, place) in [
            (json, 0),
            (undecided, 0),
            (events, 2),
            (events, u64::MAX),
            (UNSOLICITED, 1),
            (events + 1, 0),
            (u64::MAX, u64::MAX),
        ] {
            let refused = streams.attach(key, Some(place)).err();
            assert_eq!(refused, Some(CannotRead::Unknown), "{key}-{place}");
        }
        assert!(streams.attach(events, Some(1)).is_ok());
        assert!(streams.attach(UNSOLICITED, Some(0)).is_ok());
    }

    #[test]
    fn the_answers_to_one_post_have_a_bound() {
        let limits = Limits {
            output_bytes: 3500,
            ..Limits::default()
        };
        let account = Account::total(limits);
        let store = Box::<MemoryStore>::default();
        let mut streams = Streams::new(Layout::PerPost, store, account.clone());
        let (key, _) = open(&mut streams, 0..10, Form::Json);

        for id in 0..8_i64 {
            let (id, outcome) = (Some(id.into()), Json::encode(&"x".repeat(1000)));
            let outcome = Ok(outcome.unwrap());
            streams.route(None, &Response { id, outcome }.into());
        }
        streams.route(None, &answer(8));
        streams.cancelled(&9.into());

        assert_eq!(streams.unanswered().len(), 0);
        let answers = streams.take_answers(key);
        let text = |frame: &Bytes| String::from_utf8_lossy(frame).into_owned();
        let refused = |frame: &&Bytes| text(frame).contains("output_bytes");
        assert_eq!(answers.len(), 10, "each request has an answer");
        assert_eq!(answers.iter().filter(refused).count(), 5);
        assert_eq!(account.usage().refused(Limit::OutputBytes), 5);
        assert!(text(&answers[9]).contains("-32800"), "it was short");
        assert_eq!(streams.output_bytes(), 0);
    }

    #[test]
    fn what_is_read_outlives_the_end_and_nothing_else_does() {
        let mut streams = streams();
        unread(&mut streams, [1], Form::Events);
        let (key, reader) = open(&mut streams, [2], Form::Events);
        streams.route(None, &word());
        streams.route(Some(&2.into()), &word());

        streams.end();

        let next = streams.next(key, reader, Waker::noop());
        assert!(matches!(next, Next::Event { .. }));
        assert_eq!(streams.next(key, reader, Waker::noop()), Next::End);
        assert_eq!(streams.streams.len(), 1);
        streams.detach(key, reader);
        assert_eq!((streams.streams.len(), streams.event_bytes()), (0, 0));
        assert_eq!(streams.output_bytes(), 0);
    }

    #[test]
    fn a_question_that_cannot_reach_the_client_is_answered_for_it() {
        let mut streams = streams();
        open(&mut streams, [1], Form::Json);

        let routed = streams.route(Some(&1.into()), &question());

        assert!(matches!(
            routed.answer,
            Some(Message::Response(Response {
                outcome: Err(_),
                ..
            }))
        ));
        assert!(read(&mut streams, UNSOLICITED).0.is_empty());
    }

    #[test]
    fn an_answer_waits_for_its_reader_however_many_others_are_answered_first() {
        for form in [Form::Undecided, Form::Json, Form::Events] {
            let mut streams = streams();
            let opened: Vec<(u64, u64)> = (0..3 * MOST_OVER as i64)
                .map(|id| open(&mut streams, [id], form))
                .collect();

            for id in 0..3 * MOST_OVER as i64 {
                streams.route(None, &answer(id));
            }

            for (id, (key, reader)) in (0..).zip(opened) {
                let frame = match streams.form(key, Waker::noop()) {
                    Form::Events => match streams.next(key, reader, Waker::noop()) {
                        Next::Event { frame, .. } => Some(frame),
                        _ => None,
                    },
                    _ => streams.take_answers(key).pop(),
                };
                assert_eq!(frame, Some(answer(id).to_frame()), "{form:?}");
            }
        }
    }

    #[test]
    fn an_answer_in_json_is_not_kept_for_a_client_that_is_gone() {
        let mut streams = streams();
        let (key, reader) = open(&mut streams, [1], Form::Undecided);

        streams.detach(key, reader);
        streams.route(None, &answer(1));

        assert_eq!(streams.attach(key, None).err(), Some(CannotRead::Lost));
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn what_was_answered_before_a_word_was_said_stays_before_it() {
        let mut streams = streams();
        let key = unread(&mut streams, [1, 2], Form::Undecided);

        streams.route(None, &answer(1));
        streams.route(Some(&2.into()), &word());
        streams.route(None, &answer(2));

        assert_eq!(streams.form(key, Waker::noop()), Form::Events);
        let frames = [answer(1), word(), answer(2)].map(|message| message.to_frame());
        assert_eq!(read(&mut streams, key), (frames.to_vec(), Next::End));
    }

    #[test]
    fn only_so_many_streams_can_be_read_again() {
        let mut streams = streams();
        let first = unread(&mut streams, [0], Form::Events);
        streams.route(None, &answer(0));

        for id in 1..=MOST_OVER as i64 {
            unread(&mut streams, [id], Form::Events);
            streams.route(None, &answer(id));
        }

        let lost = streams.attach(first, Some(0)).err();
        assert_eq!(lost, Some(CannotRead::Lost));
        assert!(streams.attach(first + 1, Some(0)).is_ok());
    }
}
