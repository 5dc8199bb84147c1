//! Messages that wait for the wire, in the order they were queued, and how many bytes they take up.
//!
//! A queued request is kept with its call, not here, so that abandoning it is a lookup and not a search. What is taken
//! back leaves a ghost in the queue, which is skipped; the queue is swept when half of it is ghosts.

use std::collections::VecDeque;

use super::{CallId, InFlightId, Outgoing};
use crate::message::{Message, Notification};

#[derive(Debug)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    /// One for each message in the queue. Apart from it: a longer entry would be moved by calls.
    labels: VecDeque<Label>,
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
struct Label {
    /// Ascending.
    place: Place,
    /// None if it is that of a ghost.
    bytes: usize,
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
            labels: VecDeque::with_capacity(1),
            last_place: 0,
            ghosts: 0,
            words: 0,
            bytes: 0,
        }
    }
}

impl Outbox {
    /// Where the next message that is pushed will be.
    pub(super) fn next_place(&self) -> Place {
        Place(self.last_place + 1)
    }

    pub(super) fn push(&mut self, message: impl Into<Message>, within: Option<InFlightId>) {
        let message = message.into();
        self.queue
            .push_back(Queued::Message(Outgoing { message, within }));
        // Looked at where it is, and not on its way: it is long.
        let bytes = match self.queue.back() {
            Some(Queued::Message(queued)) => queued.message.variable_len(),
            _ => 0,
        };
        self.label(bytes);
    }

    pub(super) fn push_word(&mut self, within: InFlightId, notification: Notification) {
        self.words += 1;
        self.label(notification.size());
        self.queue.push_back(Queued::Word(within, notification));
    }

    /// Queues the request of a call, which is this long.
    pub(super) fn push_call(&mut self, call: CallId, bytes: usize) {
        self.label(bytes);
        self.queue.push_back(Queued::Call(call));
    }

    fn label(&mut self, bytes: usize) {
        let place = self.next_place();
        self.last_place = place.0;
        // An entry takes up memory even if its message is short.
        let bytes = bytes + PER_ENTRY;
        self.bytes += bytes;
        self.labels.push_back(Label { place, bytes });
    }

    /// Takes back what is at a place, unless it has left. Whether it was there.
    pub(super) fn take_back(&mut self, place: Place) -> bool {
        let found = self
            .labels
            .binary_search_by_key(&place, |label| label.place);
        let Ok(at) = found else {
            return false;
        };
        match self.queue.get_mut(at) {
            None | Some(Queued::Ghost) => false,
            Some(queued) => {
                *queued = Queued::Ghost;
                self.bytes -= std::mem::take(&mut self.labels[at].bytes);
                self.ghosts += 1;
                self.sweep();
                true
            }
        }
    }

    /// Takes back what was said within a request that nobody listens to any more.
    pub(super) fn silence(&mut self, request: &InFlightId) {
        if self.words == 0 {
            return;
        }
        for (queued, label) in self.queue.iter_mut().zip(&mut self.labels) {
            if matches!(queued, Queued::Word(within, _) if within == request) {
                *queued = Queued::Ghost;
                self.bytes -= std::mem::take(&mut label.bytes);
                self.words -= 1;
                self.ghosts += 1;
            }
        }
        self.sweep();
    }

    /// Removes the ghosts once half of the queue is ghosts. This keeps both the queue and the cost per ghost bounded.
    fn sweep(&mut self) {
        if self.ghosts > self.queue.len() / 2 {
            let is_ghost = |queued: &Queued| matches!(queued, Queued::Ghost);
            let mut ghosts = self.queue.iter().map(is_ghost);
            self.labels.retain(|_| ghosts.next() == Some(false));
            self.queue.retain(|queued| !is_ghost(queued));
            self.ghosts = 0;
        }
    }

    /// The next message. `send` hands out the request of a call, and `answered` is told which request it answers.
    pub(super) fn pop(
        &mut self,
        mut send: impl FnMut(CallId) -> Option<Outgoing>,
        answered: impl FnOnce(&InFlightId),
    ) -> Option<Outgoing> {
        loop {
            self.bytes -= self.labels.pop_front()?.bytes;
            match self.queue.pop_front()? {
                Queued::Message(outgoing) => {
                    if let (Message::Response(_), Some(id)) = (&outgoing.message, &outgoing.within)
                    {
                        answered(id);
                    }
                    return Some(outgoing);
                }
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

/// What an entry takes up besides what differs from message to message.
const PER_ENTRY: usize = 256;
