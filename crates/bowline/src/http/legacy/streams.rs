//! Which stream a message of the server goes onto, and how far each stream was read.
//!
//! ```text
//! answer to a request ─────────▶ the stream of its POST, which is over when all are answered
//! said or asked within one ────▶ the same
//! everything else ─────────────▶ the stream that a client may GET
//! ```
//!
//! No input or output: a message goes in, and whom to wake comes out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bowline_core::{Message, Response, other_spelling};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::by_key::ByKey;
use super::state::Head;
use super::store::{After, EventStore};
use crate::limits::{Account, Limit};

/// The streams of one session.
pub(super) struct Streams {
    store: Box<dyn EventStore>,
    streams: ByKey<Stream>,
    /// The requests of the client that are not answered yet.
    unanswered: BTreeMap<RequestId, Unanswered>,
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

struct Unanswered {
    /// The stream of its answer; `None` if that can never be read.
    key: Option<u64>,
    /// That of its POST, until its handler takes it.
    head: Option<Arc<Head>>,
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
    /// It ended at that place.
    Over,
}

/// What became of a message.
#[derive(Default)]
pub(super) struct Routed {
    pub(super) wake: Option<Waker>,
    /// That of the request that was answered, if no handler took it.
    pub(super) head: Option<Arc<Head>>,
    /// An answer of our own, to a question that cannot reach the client.
    pub(super) answer: Option<Message>,
}

impl Streams {
    pub(super) fn new(layout: Layout, store: Box<dyn EventStore>, account: Arc<Account>) -> Self {
        let unsolicited = Stream::new(Form::Events);
        Self {
            store,
            streams: ByKey::of(UNSOLICITED, unsolicited),
            unanswered: BTreeMap::new(),
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
        requests.find(|id| self.unanswered.contains_key(*id))
    }

    /// Whether a cancel with this id names a request that is not answered yet. Clients may spell it differently.
    pub(super) fn is_in_flight(&self, id: &RequestId) -> bool {
        let other = || other_spelling(id);
        self.unanswered.contains_key(id)
            || other().is_some_and(|other| self.unanswered.contains_key(&other))
    }

    /// Makes a stream for the answers of one POST, with those that need no handler. Returns its key and its reader.
    ///
    /// The reader is there from the beginning: a GET that guesses the key must not come first.
    pub(super) fn open(&mut self, form: Form, answers: Vec<Bytes>) -> (u64, u64) {
        self.last_key += 1;
        let key = self.last_key;
        let mut stream = Stream::new(form);
        self.last_reader += 1;
        stream.reader = Some(self.last_reader);
        stream.is_over = true;
        self.streams.insert(key, stream);
        for answer in answers {
            self.keep(key, answer);
        }
        (key, self.last_reader)
    }

    /// Notes a request that is answered on this stream, and the head of its POST.
    pub(super) fn expect(&mut self, id: &RequestId, key: Option<u64>, head: Option<&Arc<Head>>) {
        // One that is in flight already is refused, and must not lend its credential to the first.
        if let Entry::Vacant(place) = self.unanswered.entry(id.clone()) {
            let head = head.cloned();
            place.insert(Unanswered { key, head });
            if let Some(key) = key.filter(|key| *key != UNSOLICITED)
                && let Some(stream) = self.streams.get_mut(key)
            {
                stream.owed += 1;
                stream.is_over = false;
            }
        }
    }

    /// The head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&mut self, request: &RequestId) -> Option<Arc<Head>> {
        self.unanswered.get_mut(request)?.head.take()
    }

    /// Puts a message of the server onto its stream.
    pub(super) fn route(&mut self, within: Option<&RequestId>, message: &Message) -> Routed {
        let answered = match message {
            Message::Response(Response { id: Some(id), .. }) => self.unanswered.remove(id),
            _ => None,
        };
        let (answered, head) = match answered {
            Some(Unanswered { key, head }) => (key, head),
            None => (None, None),
        };
        let mut routed = Routed {
            head,
            ..Routed::default()
        };
        let is_answer = matches!(message, Message::Response(_));
        let key = match self.layout {
            Layout::One => UNSOLICITED,
            Layout::PerPost if is_answer => match answered {
                Some(key) => key,
                None => return routed, // it was cancelled, or could never be read
            },
            Layout::PerPost => within
                .and_then(|id| self.unanswered.get(id)?.key)
                .unwrap_or(UNSOLICITED),
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return routed;
        };
        if stream.form == Form::Json && !is_answer {
            routed.answer = cannot_ask(message);
            return routed;
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
        routed.wake = self.streams.get_mut(key).and_then(|own| own.waker.take());
        self.retire(key);
        routed
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
    pub(super) fn cancelled(&mut self, id: &RequestId) -> Routed {
        if self.layout == Layout::One {
            let request = self.unanswered.remove(id);
            return Routed {
                head: request.and_then(|request| request.head),
                ..Routed::default()
            };
        }
        let terminator = Response {
            id: Some(id.clone()),
            outcome: Err(RpcError::new(ErrorCode::REQUEST_CANCELLED, "cancelled")),
        };
        self.route(None, &terminator.into())
    }

    /// Lets a response read a stream from where the last one stopped, or from behind a place. If another response reads
    /// it, that one is at its end, or this one is refused.
    pub(super) fn attach(
        &mut self,
        key: u64,
        after: Option<u64>,
        takes_over: bool,
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
        if stream.is_over && after == Some(stream.written) {
            return Err(CannotRead::Over);
        }
        if stream.reader.is_some() && !takes_over {
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
        self.unanswered.keys()
    }

    /// How many heads wait for their handlers.
    #[cfg(test)]
    pub(super) fn heads(&self) -> usize {
        let heads = self.unanswered.values().filter_map(|own| own.head.as_ref());
        heads.count()
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
    pub(super) fn end(&mut self) -> (Vec<Waker>, impl Iterator<Item = Arc<Head>> + use<>) {
        self.has_ended = true;
        let unanswered = std::mem::take(&mut self.unanswered).into_values();
        let heads = unanswered.filter_map(|request| request.head);
        self.over.clear();
        let mut wakers = Vec::new();
        for key in self.streams.keys().collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_over = true;
                wakers.extend(stream.waker.take());
            }
            self.retire(key);
        }
        (wakers, heads)
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
    fn new(form: Form) -> Self {
        Self {
            form,
            owed: 0,
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
mod tests;
