//! Messages that wait for the wire, in the order they were queued, and how many bytes they take up.
//!
//! A queued request is kept with its call, not here, so that abandoning it is a lookup and not a search. What is taken
//! back leaves a ghost in the queue, which is skipped; the queue is swept when half of it is ghosts.

use std::collections::VecDeque;

use super::{CallId, InFlightId, Outgoing};
use crate::message::{Message, Notification};

#[derive(Debug)]
pub(super) struct Outbox {
    /// By place, ascending.
    queue: VecDeque<Entry>,
    last_place: u64,
    ghosts: usize,
    /// How many entries are notifications within a request.
    words: usize,
    bytes: usize,
}

/// Where a message is in the queue. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

#[derive(Debug)]
struct Entry {
    place: Place,
    bytes: usize,
    queued: Queued,
}

#[derive(Debug)]
enum Queued {
    Call(CallId),
    Message(Outgoing),
    /// Silenced if the request is cancelled before it leaves.
    Word(InFlightId, Notification),
    Ghost,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            // As with events: most wires never had more than one message waiting.
            queue: VecDeque::with_capacity(1),
            last_place: 0,
            ghosts: 0,
            words: 0,
            bytes: 0,
        }
    }
}

impl Outbox {
    pub(super) fn push(
        &mut self,
        message: impl Into<Message>,
        within: Option<InFlightId>,
    ) -> Place {
        let message = message.into();
        let bytes = message.room();
        self.enqueue(bytes, Queued::Message(Outgoing { message, within }))
    }

    pub(super) fn push_word(&mut self, within: InFlightId, notification: Notification) {
        let bytes = notification.size();
        self.words += 1;
        self.enqueue(bytes, Queued::Word(within, notification));
    }

    /// Queues the request of a call, which is this long.
    pub(super) fn push_call(&mut self, call: CallId, bytes: usize) -> Place {
        self.enqueue(bytes, Queued::Call(call))
    }

    fn enqueue(&mut self, bytes: usize, queued: Queued) -> Place {
        self.last_place += 1;
        let place = Place(self.last_place);
        // An entry takes up memory even if its message is short.
        let bytes = bytes + PER_ENTRY;
        self.bytes += bytes;
        self.queue.push_back(Entry {
            place,
            bytes,
            queued,
        });
        place
    }

    /// Takes back what is at a place, unless it has left. Whether it was there.
    pub(super) fn take_back(&mut self, place: Place) -> bool {
        let found = self.queue.binary_search_by_key(&place, |entry| entry.place);
        let Some(entry) = found.ok().and_then(|at| self.queue.get_mut(at)) else {
            return false;
        };
        if let Queued::Ghost = entry.queued {
            return false;
        }
        entry.queued = Queued::Ghost;
        self.bytes -= std::mem::take(&mut entry.bytes);
        self.ghosts += 1;
        // Sweeping once half of the queue is ghosts keeps both the queue and the cost per ghost bounded.
        if self.ghosts > self.queue.len() / 2 {
            self.queue
                .retain(|entry| !matches!(entry.queued, Queued::Ghost));
            self.ghosts = 0;
        }
        true
    }

    /// Takes back what was said within a request that nobody listens to any more.
    pub(super) fn silence(&mut self, request: &InFlightId) {
        if self.words == 0 {
            return;
        }
        let (mut words, mut bytes) = (0, 0);
        self.queue.retain(|entry| {
            let is_silenced = matches!(&entry.queued, Queued::Word(within, _) if within == request);
            if is_silenced {
                words += 1;
                bytes += entry.bytes;
            }
            !is_silenced
        });
        self.words -= words;
        self.bytes -= bytes;
    }

    /// The next message; `send` hands out the request of a call.
    pub(super) fn pop(
        &mut self,
        mut send: impl FnMut(CallId) -> Option<Outgoing>,
    ) -> Option<Outgoing> {
        loop {
            let entry = self.queue.pop_front()?;
            self.bytes -= entry.bytes;
            match entry.queued {
                Queued::Message(outgoing) => return Some(outgoing),
                Queued::Word(within, notification) => {
                    self.words -= 1;
                    return Some(Outgoing {
                        message: notification.into(),
                        within: Some(within),
                    });
                }
                Queued::Call(call) => {
                    if let Some(request) = send(call) {
                        return Some(request);
                    }
                }
                Queued::Ghost => self.ghosts -= 1,
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self {
            last_place: self.last_place,
            ..Self::default()
        };
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.ghosts
    }

    /// How many bytes wait, with what the queue itself takes up.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What an entry takes up besides its text.
const PER_ENTRY: usize = 256;
