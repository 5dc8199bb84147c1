//! Routes outbound messages of a session onto its streams, and tracks how far each stream was read.
//!
//! ```text
//! response to a request ────────▶ the stream of its POST, which ends when all are answered
//! other message within one ─────▶ the same stream
//! other request ────────────────▶ the stream that a client may GET, or while it reads none, that of a POST
//! everything else ──────────────▶ the stream that a client may GET
//! ```
//!
//! No I/O: a message goes in, the waker to wake comes out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bowline_core::{Message, RawRequest, Response, alternate_id};
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::ascending_map::AscendingMap;
use super::event_store::{EventStore, NextStored};
use super::session_record::RecordChange;
use super::session_state::PostHead;
use crate::limits::{Account, Limit};

/// The streams of one session.
pub(super) struct SessionStreams {
    store: Box<dyn EventStore>,
    streams: AscendingMap<SessionStream>,
    /// The unanswered requests of the client.
    unanswered: BTreeMap<RequestId, UnansweredRequest>,
    /// The unanswered requests of the server that belong to no request of the client, but are on the stream of a POST,
    /// and that stream. Their cancels must not overtake them.
    carried: BTreeMap<RequestId, u64>,
    /// The ended streams without a reader, which may still be resumed, oldest first.
    ended_streams: VecDeque<u64>,
    last_key: u64,
    last_reader: u64,
    layout: StreamLayout,
    /// Bytes of answers that wait for the other answers of their POST.
    answer_bytes: usize,
    /// The bytes that the newest event added to the store.
    newest_bytes: usize,
    has_ended: bool,
    account: Arc<Account>,
}

/// How messages are distributed over streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamLayout {
    /// Streamable HTTP: each POST has a stream of its own.
    StreamableHttp,
    /// HTTP+SSE: all messages go onto the one stream that the client opened first.
    HttpSse,
}

/// The form of the response to a POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseForm {
    /// Either of the others, depending on which message comes first.
    Undecided,
    /// The answers as JSON, without other messages.
    Json,
    /// An SSE stream.
    Events,
}

struct UnansweredRequest {
    /// The stream of its answer; `None` if it has none.
    key: Option<u64>,
    /// The head of its POST, until its handler takes it.
    head: Option<Arc<PostHead>>,
    /// What it changes in the record of the session, if the server accepts it.
    change: Option<Box<RecordChange>>,
}

#[derive(Debug)]
struct SessionStream {
    form: ResponseForm,
    /// The number of unanswered requests on it.
    unanswered_requests: usize,
    /// Whether it is of a POST that may carry requests which belong to no request of the client.
    may_carry: bool,
    /// The answers, unless the form is events: JSON is read once and not stored for resumption.
    answers: Vec<Bytes>,
    /// The position of the last event written.
    written: u64,
    /// The position of the last event read.
    read: u64,
    is_ended: bool,
    reader: Option<u64>,
    waker: Option<Waker>,
}

/// The result of [`SessionStreams::next`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextEvent {
    Event { position: u64, frame: Bytes },
    Wait,
    End,
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachError {
    /// Another response is reading it.
    AlreadyOpen,
    /// No event has that position, or the stream is not SSE.
    Unknown,
    /// The events after that position were dropped.
    Lost,
    /// The stream ended at that position.
    Ended,
}

/// The result of routing a message.
#[derive(Default)]
pub(super) struct Routed {
    pub(super) wake: Option<Waker>,
    /// The head of the answered request, if no handler took it.
    pub(super) head: Option<Arc<PostHead>>,
    /// An error response for the server, if its request cannot reach the client.
    pub(super) answer: Option<Message>,
    /// What the answered request has changed in the record of the session.
    pub(super) change: Option<Box<RecordChange>>,
}

impl SessionStreams {
    pub(super) fn new(
        layout: StreamLayout,
        store: Box<dyn EventStore>,
        account: Arc<Account>,
    ) -> Self {
        let unsolicited = SessionStream::new(ResponseForm::Events);
        Self {
            store,
            streams: AscendingMap::with_entry(UNSOLICITED, unsolicited),
            unanswered: BTreeMap::new(),
            carried: BTreeMap::new(),
            ended_streams: VecDeque::new(),
            last_key: UNSOLICITED,
            last_reader: 0,
            layout,
            answer_bytes: 0,
            newest_bytes: 0,
            has_ended: false,
            account,
        }
    }

    /// Returns the first of these ids that an unanswered request has. With
    /// [`StreamLayout::HttpSse`] the engine detects this.
    pub(super) fn find_in_flight<'a>(
        &self,
        mut requests: impl Iterator<Item = &'a RequestId>,
    ) -> Option<&'a RequestId> {
        if self.layout == StreamLayout::HttpSse {
            return None;
        }
        requests.find(|id| self.unanswered.contains_key(*id))
    }

    /// Returns whether a cancel with this id matches an unanswered request, also if one has `7` and the other `"7"`.
    pub(super) fn is_in_flight(&self, id: &RequestId) -> bool {
        let other = || alternate_id(id);
        self.unanswered.contains_key(id)
            || other().is_some_and(|other| self.unanswered.contains_key(&other))
    }

    /// Opens a stream for the answers of one POST; `answers` need no handler. Returns its key and its reader.
    ///
    /// The reader is attached from the beginning, so that a GET with a guessed key cannot attach first.
    pub(super) fn open(&mut self, form: ResponseForm, answers: Vec<Bytes>) -> (u64, u64) {
        self.last_key += 1;
        let key = self.last_key;
        let mut stream = SessionStream::new(form);
        self.last_reader += 1;
        stream.reader = Some(self.last_reader);
        stream.is_ended = true;
        self.streams.insert(key, stream);
        for answer in answers {
            self.store_frame(key, answer);
        }
        (key, self.last_reader)
    }

    /// Registers a request that is answered on this stream, with the head of its POST.
    pub(super) fn expect_answer(
        &mut self,
        raw: &RawRequest,
        key: Option<u64>,
        head: Option<&Arc<PostHead>>,
    ) {
        // The engine rejects a duplicate id; the first request must not run with the second one's principal.
        if let Entry::Vacant(entry) = self.unanswered.entry(raw.id.clone()) {
            let head = head.cloned();
            let change = RecordChange::of(raw).map(Box::new);
            entry.insert(UnansweredRequest { key, head, change });
            if let Some(key) = key.filter(|key| *key != UNSOLICITED)
                && let Some(stream) = self.streams.get_mut(key)
            {
                stream.unanswered_requests += 1;
                stream.is_ended = false;
            }
        }
    }

    /// Allows a stream to carry requests that belong to no request of the client.
    pub(super) fn allow_carrying(&mut self, key: u64) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.may_carry = true;
        }
    }

    /// Takes the head of the POST that a request came with, for its handler.
    pub(super) fn take_head(&mut self, request: &RequestId) -> Option<Arc<PostHead>> {
        self.unanswered.get_mut(request)?.head.take()
    }

    /// Puts an outbound message onto its stream.
    pub(super) fn route(&mut self, within: Option<&RequestId>, message: &Message) -> Routed {
        let answered = match message {
            Message::Response(Response { id: Some(id), .. }) => self.unanswered.remove(id),
            _ => None,
        };
        let (answered, head, change) = match answered {
            Some(UnansweredRequest { key, head, change }) => (key, head, change),
            None => (None, None, None),
        };
        let is_accepted = matches!(message, Message::Response(answer) if answer.outcome.is_ok());
        let mut routed = Routed {
            head,
            change: change.filter(|_| is_accepted),
            ..Routed::default()
        };
        let key = match (self.layout, message) {
            (StreamLayout::HttpSse, _) => UNSOLICITED,
            (StreamLayout::StreamableHttp, Message::Response(_)) => match answered {
                Some(key) => key,
                None => return routed, // cancelled, or without a stream
            },
            (StreamLayout::StreamableHttp, Message::Request(_) | Message::Notification(_)) => {
                let own = within.and_then(|id| self.unanswered.get(id)?.key);
                own.or_else(|| self.carry(message)).unwrap_or(UNSOLICITED)
            }
        };
        self.put(key, message, &mut routed);
        routed
    }

    /// Puts the cancel of a request of the server that belongs to no request of the client onto the stream of that
    /// request, or onto another one if that has ended.
    pub(super) fn route_cancel(&mut self, request: &RequestId, cancel: &Message) -> Routed {
        let carried = self.carried.remove(request);
        let is_open = |key: &u64| self.streams.get(*key).is_some_and(|own| !own.is_ended);
        let key = match carried {
            Some(key) => Some(key).filter(is_open).or_else(|| self.carrier()),
            None => None,
        };
        let mut routed = Routed::default();
        self.put(key.unwrap_or(UNSOLICITED), cancel, &mut routed);
        routed
    }

    /// Forgets a request of the server that the client has answered.
    pub(super) fn answered(&mut self, request: &RequestId) {
        self.carried.remove(request);
    }

    fn carry(&mut self, message: &Message) -> Option<u64> {
        let Message::Request(request) = message else {
            return None;
        };
        let key = self.carrier()?;
        self.carried.insert(request.id.clone(), key);
        Some(key)
    }

    /// Selects the stream of a POST for a request that belongs to no request of the client, if the client does not read
    /// the stream for such messages, and may never open it.
    ///
    /// The specification allows requests on each stream, and says of those of a POST that they should relate to it
    /// (2025-11-25, basic/transports). So this is the second choice, and the request does not end with the POST.
    fn carrier(&self) -> Option<u64> {
        if self.streams.get(UNSOLICITED)?.reader.is_some() {
            return None;
        }
        let can_carry = |own: &SessionStream| {
            own.may_carry && own.reader.is_some() && !own.is_ended && own.form != ResponseForm::Json
        };
        let mut newest_first = self.streams.iter().rev();
        let (key, _) = newest_first.find(|(_, own)| can_carry(own))?;
        Some(key)
    }

    fn put(&mut self, key: u64, message: &Message, routed: &mut Routed) {
        let is_answer = matches!(message, Message::Response(_));
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if stream.form == ResponseForm::Json && !is_answer {
            routed.answer = unreachable_client_error(message);
            return;
        }
        if is_answer && key != UNSOLICITED {
            stream.unanswered_requests = stream.unanswered_requests.saturating_sub(1);
            stream.is_ended = stream.unanswered_requests == 0;
        }
        if !is_answer {
            self.commit_to_events(key);
        }
        let frame = self.encode_within_limit(key, message);
        self.store_frame(key, frame);
        routed.wake = self.streams.get_mut(key).and_then(|own| own.waker.take());
        self.retire_if_ended(key);
    }

    /// Encodes the message, or a short error instead if the answers to one POST exceed `Limits::output_bytes`.
    fn encode_within_limit(&self, key: u64, message: &Message) -> Bytes {
        let frame = message.to_frame();
        let waiting = self.streams.get(key).map_or(0, SessionStream::answer_bytes);
        let max = self.account.limits().output_bytes;
        match message {
            // The first answer may have any length. A short one is kept, as an error would be no shorter.
            Message::Response(response)
                if waiting > 0
                    && waiting + frame.len() > max
                    && frame.len() > MAX_SHORT_ANSWER_BYTES =>
            {
                let reached = self.account.counters().refuse(Limit::OutputBytes, max);
                let refusal = Response {
                    id: response.id.clone(),
                    outcome: Err(reached.into()),
                };
                Message::from(refusal).to_frame()
            }
            _ => frame,
        }
    }

    /// Ends the POST of a cancelled request with error -32800, because the engine sends no response for it.
    pub(super) fn end_cancelled(&mut self, id: &RequestId) -> Routed {
        if self.layout == StreamLayout::HttpSse {
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

    /// Attaches a response to a stream, to read from where the last one stopped or after position `after`. If another
    /// response reads it, that one ends (`takes_over`) or this one is rejected.
    pub(super) fn attach(
        &mut self,
        key: u64,
        after: Option<u64>,
        takes_over: bool,
    ) -> Result<(u64, Option<Waker>), AttachError> {
        let known = if key > self.last_key {
            AttachError::Unknown
        } else {
            AttachError::Lost
        };
        let stream = self.streams.get_mut(key).ok_or(known)?;
        if stream.form != ResponseForm::Events
            || after.is_some_and(|position| position > stream.written)
        {
            return Err(AttachError::Unknown);
        }
        if stream.is_ended && after == Some(stream.written) {
            return Err(AttachError::Ended);
        }
        if stream.reader.is_some() && !takes_over {
            return Err(AttachError::AlreadyOpen);
        }
        let position = after.unwrap_or(stream.read);
        if after.is_some() && self.store.after(key, position) == NextStored::Lost {
            return Err(AttachError::Lost);
        }
        self.last_reader += 1;
        stream.read = position;
        stream.reader = Some(self.last_reader);
        let replaced = stream.waker.take();
        if stream.is_ended {
            self.ended_streams.retain(|own| *own != key);
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
            self.retire_if_ended(key);
        }
    }

    /// Detaches the response that reads a stream, and returns its waker.
    pub(super) fn detach_reader(&mut self, key: u64) -> Option<Waker> {
        let stream = self.streams.get_mut(key)?;
        stream.reader = None;
        stream.waker.take()
    }

    /// Returns whether a response reads a stream.
    pub(super) fn has_reader(&self, key: u64) -> bool {
        let stream = self.streams.get(key);
        stream.is_some_and(|stream| stream.reader.is_some())
    }

    /// Returns the next event for a reader; `waker` is woken when there may be one.
    pub(super) fn next(&mut self, key: u64, reader: u64, waker: &Waker) -> NextEvent {
        let stream = self.streams.get_mut(key);
        let Some(stream) = stream.filter(|own| own.is_read_by(reader)) else {
            return NextEvent::End;
        };
        let mut next = self.store.after(key, stream.read);
        // Events were dropped before this slow reader read them. The response to a call goes on with what is left, since
        // its result is the last event and most of the others are progress. The stream of notifications ends: if the
        // client resumes it, it gets `AttachError::Lost`, and knows that it has missed some.
        if next == NextStored::Lost && key != UNSOLICITED {
            let kept = first_kept(&*self.store, key, stream.read..stream.written);
            tracing::debug!(lost = kept - stream.read, "dropped events of a slow client");
            stream.read = kept;
            next = self.store.after(key, kept);
        }
        match next {
            NextStored::Event { position, frame } => {
                stream.read = position;
                NextEvent::Event { position, frame }
            }
            NextStored::NotYet if !stream.is_ended => {
                stream.waker = Some(waker.clone());
                NextEvent::Wait
            }
            NextStored::NotYet => NextEvent::End,
            NextStored::Lost => NextEvent::End,
        }
    }

    /// Returns the form of a stream if it is decided; `waker` is woken when it may be.
    pub(super) fn form(&mut self, key: u64, waker: &Waker) -> ResponseForm {
        let Some(stream) = self.streams.get_mut(key) else {
            return ResponseForm::Json;
        };
        match stream.form {
            ResponseForm::Undecided | ResponseForm::Json if stream.is_ended => ResponseForm::Json,
            ResponseForm::Events => ResponseForm::Events,
            ResponseForm::Undecided | ResponseForm::Json => {
                stream.waker = Some(waker.clone());
                ResponseForm::Undecided
            }
        }
    }

    /// Sets the form of a stream to events, including the answers so far.
    pub(super) fn commit_to_events(&mut self, key: u64) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.form = ResponseForm::Events;
        let answers = std::mem::take(&mut stream.answers);
        for answer in answers {
            self.answer_bytes -= answer.len();
            self.store_frame(key, answer);
        }
    }

    /// Takes the answers of a stream whose form is JSON, and removes the stream.
    pub(super) fn take_answers(&mut self, key: u64) -> Vec<Bytes> {
        self.remove(key)
            .map(|stream| stream.answers)
            .unwrap_or_default()
    }

    /// Stores a frame on a stream until it is read.
    fn store_frame(&mut self, key: u64, frame: Bytes) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        match stream.form {
            ResponseForm::Undecided | ResponseForm::Json => {
                self.answer_bytes += frame.len();
                stream.answers.push(frame);
            }
            ResponseForm::Events => {
                let before = self.store.bytes();
                stream.written = self.store.append(key, frame);
                // Too low if `append` dropped older events, which only means that this one may be dropped too.
                self.newest_bytes = self.store.bytes().saturating_sub(before);
            }
        }
    }

    /// Returns the position of the last event read, after which a new reader continues.
    pub(super) fn read_so_far(&self, key: u64) -> u64 {
        self.streams.get(key).map_or(0, |stream| stream.read)
    }

    /// Returns the position of the last event of a stream.
    pub(super) fn written(&self, key: u64) -> u64 {
        self.streams.get(key).map_or(0, |stream| stream.written)
    }

    /// Returns whether a stream has ended that was not read to its end.
    pub(super) fn has_unread(&self) -> bool {
        let mut streams = self.streams.keys().filter_map(|key| self.streams.get(key));
        streams.any(|stream| stream.is_ended && stream.read < stream.written)
    }

    /// Returns the ids of the unanswered requests.
    pub(super) fn unanswered(&self) -> impl ExactSizeIterator<Item = &RequestId> {
        self.unanswered.keys()
    }

    /// Returns how many heads wait for their handlers.
    #[cfg(test)]
    pub(super) fn heads(&self) -> usize {
        let heads = self.unanswered.values().filter_map(|own| own.head.as_ref());
        heads.count()
    }

    /// Returns the bytes of stored events, and of streams that are kept only for resumption.
    pub(super) fn event_bytes(&self) -> usize {
        self.store.bytes() + self.ended_streams.len() * PER_STREAM
    }

    /// Returns the bytes of everything else: waiting answers and open streams.
    pub(super) fn output_bytes(&self) -> usize {
        let unsolicited = usize::from(self.streams.get(UNSOLICITED).is_some());
        let open = self.streams.len() - unsolicited - self.ended_streams.len();
        self.answer_bytes + open * PER_STREAM
    }

    /// Drops the oldest events until this many bytes are free, and returns how many were dropped.
    pub(super) fn drop_events(&mut self, bytes: usize, keep: KeepEvents) -> u64 {
        let kept = match keep {
            KeepEvents::Newest => self.newest_bytes,
            KeepEvents::Nothing => 0,
        };
        let enough = self.store.bytes().saturating_sub(bytes);
        let mut dropped = 0;
        while self.store.bytes() > enough.max(kept) && self.store.drop_oldest() {
            dropped += 1;
        }
        let ended = std::mem::take(&mut self.ended_streams);
        let (kept, lost): (_, VecDeque<_>) =
            ended.into_iter().partition(|key| self.has_events(*key));
        self.ended_streams = kept;
        for key in lost {
            self.remove(key);
        }
        dropped
    }

    /// Returns whether the last event of a stream is still stored.
    fn has_events(&self, key: u64) -> bool {
        let written = self.streams.get(key).map_or(0, |stream| stream.written);
        self.store.after(key, written.saturating_sub(1)) != NextStored::Lost
    }

    /// Ends all streams. Only those that a response is reading are kept.
    pub(super) fn end(&mut self) -> (Vec<Waker>, impl Iterator<Item = Arc<PostHead>> + use<>) {
        self.has_ended = true;
        let unanswered = std::mem::take(&mut self.unanswered).into_values();
        let heads = unanswered.filter_map(|request| request.head);
        self.ended_streams.clear();
        let mut wakers = Vec::new();
        for key in self.streams.keys().collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_ended = true;
                wakers.extend(stream.waker.take());
            }
            self.retire_if_ended(key);
        }
        (wakers, heads)
    }

    /// Removes an ended stream without a reader, or keeps it for resumption if it is SSE.
    fn retire_if_ended(&mut self, key: u64) {
        let is_done = |own: &&SessionStream| own.is_ended && own.reader.is_none();
        let Some(stream) = self.streams.get(key).filter(is_done) else {
            return;
        };
        if stream.form != ResponseForm::Events || self.has_ended {
            self.remove(key);
            return;
        }
        self.ended_streams.push_back(key);
        if self.ended_streams.len() > MAX_ENDED_STREAMS
            && let Some(oldest) = self.ended_streams.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: u64) -> Option<SessionStream> {
        let stream = self.streams.remove(key)?;
        self.carried.retain(|_, carrier| *carrier != key);
        self.answer_bytes -= stream.answer_bytes();
        self.store.remove_stream(key);
        Some(stream)
    }
}

/// Which events of a session are kept when others are dropped to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepEvents {
    Newest,
    Nothing,
}

impl SessionStream {
    fn new(form: ResponseForm) -> Self {
        Self {
            form,
            unanswered_requests: 0,
            may_carry: false,
            answers: Vec::new(),
            written: 0,
            read: 0,
            is_ended: false,
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

/// Returns the error response to a request that cannot reach the client, so that the handler does not wait for it.
fn unreachable_client_error(message: &Message) -> Option<Message> {
    let Message::Request(request) = message else {
        return None;
    };
    let why = "cannot send a request to the client: its POST is answered as JSON";
    let answer = Response {
        id: Some(request.id.clone()),
        outcome: Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why)),
    };
    Some(answer.into())
}

/// The stream that a client may GET.
pub(super) const UNSOLICITED: u64 = 0;
/// How many ended streams are kept for resumption.
const MAX_ENDED_STREAMS: usize = 64;
/// The length up to which an answer is not replaced by an error, which would be no shorter.
pub(super) const MAX_SHORT_ANSWER_BYTES: usize = 256;
/// Estimated bytes of a stream without its events.
const PER_STREAM: usize = 256;

/// Returns the first of these positions of a stream after which the event is still stored, or their end. The events of a
/// stream are dropped in their order.
fn first_kept(store: &dyn EventStore, key: u64, positions: std::ops::Range<u64>) -> u64 {
    let (mut lost, mut kept) = (positions.start, positions.end);
    while lost + 1 < kept {
        let middle = lost + (kept - lost) / 2;
        match store.after(key, middle) {
            NextStored::Lost => lost = middle,
            _ => kept = middle,
        }
    }
    kept
}

#[cfg(test)]
mod tests;
