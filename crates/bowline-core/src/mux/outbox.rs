//! Messages that wait for the wire, in the order they were queued.
//!
//! A queued request is kept with its call, not here, so that abandoning it is a lookup and not a search;
//! what stays behind in the queue is a ghost, which is skipped.

use std::collections::VecDeque;

use bowline_types::RequestId;

use super::{CallId, InFlightId, Outgoing};
use crate::id::other_spelling;
use crate::message::{Message, Notification};

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    ghosts: usize,
}

#[derive(Debug)]
enum Queued {
    Call(CallId),
    Message(Outgoing),
    /// Silenced if the request is cancelled before it leaves.
    Word(InFlightId, Notification),
}

impl Outbox {
    pub(super) fn push(&mut self, message: impl Into<Message>, within: Option<InFlightId>) {
        self.queue.push_back(Queued::Message(Outgoing {
            message: message.into(),
            within,
        }));
    }

    pub(super) fn push_word(&mut self, within: InFlightId, notification: Notification) {
        self.queue.push_back(Queued::Word(within, notification));
    }

    pub(super) fn push_call(&mut self, call: CallId) {
        self.queue.push_back(Queued::Call(call));
    }

    /// Takes note that the request of one more call will not leave.
    pub(super) fn withdraw(&mut self, is_pending: impl Fn(CallId) -> bool) {
        self.ghosts += 1;
        // Sweeping once half of the queue is ghosts keeps both the queue and the cost per ghost bounded.
        if self.ghosts > self.queue.len() / 2 {
            self.queue.retain(|queued| match queued {
                Queued::Call(call) => is_pending(*call),
                Queued::Message(_) | Queued::Word(..) => true,
            });
            self.ghosts = 0;
        }
    }

    /// Takes back what was said within a request that nobody listens to any more.
    pub(super) fn silence(&mut self, request: &InFlightId) {
        self.queue
            .retain(|queued| !matches!(queued, Queued::Word(within, _) if within == request));
    }

    /// Takes back the answer to the request that a cancel names, unless it has left, and tells which request
    /// that was.
    pub(super) fn take_back_answer(&mut self, named: &RequestId) -> Option<InFlightId> {
        let other = other_spelling(named);
        let exactly = self.answer_to(named);
        let at = exactly.or_else(|| self.answer_to(other.as_ref()?))?;
        match self.queue.remove(at)? {
            Queued::Message(answer) => answer.within,
            Queued::Call(_) | Queued::Word(..) => None,
        }
    }

    /// Where the last answer to a request of this id waits.
    fn answer_to(&self, id: &RequestId) -> Option<usize> {
        self.queue.iter().rposition(|queued| match queued {
            Queued::Message(Outgoing { message, within }) => {
                matches!(message, Message::Response(_))
                    && within.as_ref().is_some_and(|own| own.request_id() == id)
            }
            Queued::Call(_) | Queued::Word(..) => false,
        })
    }

    /// The next message; `send` hands out the request of a call, unless the call is gone.
    pub(super) fn pop(
        &mut self,
        mut send: impl FnMut(CallId) -> Option<Outgoing>,
    ) -> Option<Outgoing> {
        loop {
            match self.queue.pop_front()? {
                Queued::Message(outgoing) => return Some(outgoing),
                Queued::Word(within, notification) => {
                    return Some(Outgoing {
                        message: notification.into(),
                        within: Some(within),
                    });
                }
                Queued::Call(call) => match send(call) {
                    Some(request) => return Some(request),
                    None => self.ghosts -= 1,
                },
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.ghosts = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.ghosts
    }
}
