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
use std::task::Waker;

use bowline_core::{Message, Response};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::store::{After, EventStore};

/// The streams of one session.
pub(super) struct Streams {
    store: Box<dyn EventStore>,
    streams: BTreeMap<u64, Stream>,
    /// Which stream each unanswered request of the client is answered on.
    by_request: BTreeMap<RequestId, u64>,
    /// Streams that are over and read by nobody, but may be read again, oldest first.
    over: VecDeque<u64>,
    last_key: u64,
    last_reader: u64,
    layout: Layout,
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
    /// Somebody else does.
    Taken,
    /// There is no such stream, or what followed that place of it was not kept.
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
    pub(super) fn new(layout: Layout, store: Box<dyn EventStore>) -> Self {
        let unsolicited = Stream::new(Form::Events, 0);
        Self {
            store,
            streams: BTreeMap::from([(UNSOLICITED, unsolicited)]),
            by_request: BTreeMap::new(),
            over: VecDeque::new(),
            last_key: UNSOLICITED,
            last_reader: 0,
            layout,
        }
    }

    /// Makes a stream for the answers to these requests, or names the one that is in flight already.
    pub(super) fn open(&mut self, requests: &[RequestId], form: Form) -> Result<u64, RequestId> {
        let is_taken = |(at, id): &(usize, &RequestId)| {
            self.by_request.contains_key(*id) || requests[..*at].contains(id)
        };
        if let Some((_, taken)) = requests.iter().enumerate().find(is_taken) {
            return Err(taken.clone());
        }
        self.last_key += 1;
        let key = self.last_key;
        self.streams.insert(key, Stream::new(form, requests.len()));
        let ids = requests.iter().cloned();
        self.by_request.extend(ids.map(|id| (id, key)));
        Ok(key)
    }

    /// Puts answers that need no handler onto a stream that was just opened.
    pub(super) fn answer_already(&mut self, key: u64, answers: Vec<Bytes>) {
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        for answer in answers {
            stream.keep(key, answer, &mut *self.store);
        }
        if stream.owed == 0 {
            stream.is_over = true;
            self.retire(key);
        }
    }

    /// Puts a message of the server onto its stream.
    pub(super) fn route(&mut self, within: Option<&RequestId>, message: &Message) -> Routed {
        let key = match (self.layout, message) {
            (Layout::One, _) => UNSOLICITED,
            (Layout::PerPost, Message::Response(response)) => {
                let asked = response
                    .id
                    .as_ref()
                    .and_then(|id| self.by_request.remove(id));
                match asked {
                    Some(key) => key,
                    None => return Routed::default(), // it was cancelled, or could never be read
                }
            }
            (Layout::PerPost, _) => within
                .and_then(|id| self.by_request.get(id).copied())
                .unwrap_or(UNSOLICITED),
        };
        let Some(stream) = self.streams.get_mut(&key) else {
            return Routed::default();
        };
        let is_answer = matches!(message, Message::Response(_));
        if stream.form == Form::Json && !is_answer {
            return Routed {
                wake: None,
                answer: cannot_ask(message),
            };
        }
        if !is_answer {
            stream.commit_to_events(key, &mut *self.store);
        }
        stream.keep(key, message.to_frame(), &mut *self.store);
        if is_answer && key != UNSOLICITED {
            stream.owed -= 1;
            stream.is_over = stream.owed == 0;
        }
        let (wake, is_over) = (stream.waker.take(), stream.is_over);
        if is_over {
            self.retire(key);
        }
        Routed { wake, answer: None }
    }

    /// Ends the POST of a request that the client cancelled: something has to, and nothing else will.
    pub(super) fn cancelled(&mut self, id: &RequestId) -> Option<Waker> {
        if self.layout == Layout::One {
            return None;
        }
        let terminator = Response {
            id: Some(id.clone()),
            outcome: Err(RpcError::new(ErrorCode::REQUEST_CANCELLED, "cancelled")),
        };
        self.route(None, &terminator.into()).wake
    }

    /// Lets somebody read a stream, from where the last one stopped, unless somebody does. Or from behind
    /// a place, which only one who lost the stream can name: whoever read it until then is at its end.
    pub(super) fn attach(
        &mut self,
        key: u64,
        after: Option<u64>,
    ) -> Result<(u64, Option<Waker>), CannotRead> {
        let stream = self.streams.get_mut(&key).ok_or(CannotRead::Lost)?;
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
            .get_mut(&key)
            .filter(|own| own.is_read_by(reader))
        {
            stream.reader = None;
            stream.waker = None;
            if stream.is_over {
                self.retire(key);
            }
        }
    }

    /// The next event for a reader; `waker` is woken when there may be one.
    pub(super) fn next(&mut self, key: u64, reader: u64, waker: &Waker) -> Next {
        let stream = self.streams.get_mut(&key);
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
        let Some(stream) = self.streams.get_mut(&key) else {
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
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.commit_to_events(key, &mut *self.store);
        }
    }

    /// Takes the answers of a stream that is answered as JSON. It cannot be read again.
    pub(super) fn take_answers(&mut self, key: u64) -> Vec<Bytes> {
        let stream = self.streams.remove(&key);
        stream.map(|stream| stream.answers).unwrap_or_default()
    }

    /// The place of the last event that was read, which is where a new reader would go on.
    pub(super) fn read_so_far(&self, key: u64) -> u64 {
        self.streams.get(&key).map_or(0, |stream| stream.read)
    }

    /// The requests that are not answered yet.
    pub(super) fn unanswered(&self) -> impl ExactSizeIterator<Item = &RequestId> {
        self.by_request.keys()
    }

    /// Nothing more will come.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.by_request.clear();
        let streams = self.streams.values_mut();
        streams
            .filter_map(|stream| {
                stream.is_over = true;
                stream.waker.take()
            })
            .collect()
    }

    /// Lets go of a stream that is over, once nobody reads it: what is on it may not have been read yet.
    fn retire(&mut self, key: u64) {
        let Some(stream) = self.streams.get(&key).filter(|own| own.reader.is_none()) else {
            return;
        };
        if stream.form != Form::Events {
            self.streams.remove(&key);
            return;
        }
        self.over.push_back(key);
        if self.over.len() > MOST_OVER
            && let Some(oldest) = self.over.pop_front()
        {
            self.streams.remove(&oldest);
            self.store.forget(oldest);
        }
    }
}

impl Stream {
    fn new(form: Form, owed: usize) -> Self {
        Self {
            form,
            owed,
            answers: Vec::new(),
            read: 0,
            is_over: false,
            reader: None,
            waker: None,
        }
    }

    fn keep(&mut self, key: u64, frame: Bytes, store: &mut dyn EventStore) {
        match self.form {
            Form::Undecided | Form::Json => self.answers.push(frame),
            Form::Events => {
                store.append(key, frame);
            }
        }
    }

    fn commit_to_events(&mut self, key: u64, store: &mut dyn EventStore) {
        self.form = Form::Events;
        for answer in self.answers.drain(..) {
            store.append(key, answer);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::legacy::store::MemoryStore;
    use bowline_core::{Notification, RawRequest};
    use bowline_types::Json;

    fn streams() -> Streams {
        Streams::new(Layout::PerPost, Box::<MemoryStore>::default())
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
        let first = streams.open(&[1.into()], Form::Undecided).unwrap();
        let second = streams.open(&[2.into()], Form::Events).unwrap();

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
        let key = streams.open(&[1.into(), 2.into()], Form::Events).unwrap();

        streams.route(None, &answer(1));
        assert_eq!(read(&mut streams, key).1, Next::Wait);
        streams.route(None, &answer(2));

        assert_eq!(read(&mut streams, key).1, Next::End);
        assert_eq!(streams.unanswered().len(), 0);
    }

    #[test]
    fn an_answer_after_the_cancel_is_on_no_stream() {
        let mut streams = streams();
        let key = streams.open(&[1.into()], Form::Events).unwrap();

        streams.cancelled(&1.into());
        streams.route(None, &answer(1));

        let (frames, _) = read(&mut streams, key);
        assert_eq!(frames.len(), 1);
        assert!(String::from_utf8_lossy(&frames[0]).contains("-32800"));
        assert!(read(&mut streams, UNSOLICITED).0.is_empty());
    }

    #[test]
    fn two_requests_with_one_id_are_refused_also_in_one_batch() {
        let mut streams = streams();
        streams.open(&[1.into()], Form::Events).unwrap();

        assert_eq!(streams.open(&[1.into()], Form::Events), Err(1.into()));
        assert_eq!(
            streams.open(&[2.into(), 2.into()], Form::Events),
            Err(2.into())
        );
        assert!(streams.open(&["1".into()], Form::Events).is_ok());
    }

    #[test]
    fn a_question_that_cannot_reach_the_client_is_answered_for_it() {
        let mut streams = streams();
        streams.open(&[1.into()], Form::Json).unwrap();

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
                .map(|id| {
                    let key = streams.open(&[id.into()], form).unwrap();
                    (key, streams.attach(key, None).unwrap().0)
                })
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
        let key = streams.open(&[1.into()], Form::Undecided).unwrap();
        let (reader, _) = streams.attach(key, None).unwrap();

        streams.detach(key, reader);
        streams.route(None, &answer(1));

        assert_eq!(streams.attach(key, None).err(), Some(CannotRead::Lost));
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn what_was_answered_before_a_word_was_said_stays_before_it() {
        let mut streams = streams();
        let key = streams
            .open(&[1.into(), 2.into()], Form::Undecided)
            .unwrap();

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
        let first = streams.open(&[0.into()], Form::Events).unwrap();
        streams.route(None, &answer(0));

        for id in 1..=MOST_OVER as i64 {
            streams.open(&[id.into()], Form::Events).unwrap();
            streams.route(None, &answer(id));
        }

        let lost = streams.attach(first, Some(0)).err();
        assert_eq!(lost, Some(CannotRead::Lost));
        assert!(streams.attach(first + 1, Some(0)).is_ok());
    }
}
