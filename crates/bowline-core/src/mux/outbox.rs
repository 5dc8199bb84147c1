//! The queue of outgoing messages, and its size in bytes.
//!
//! A queued request is stored with its call, so that abandoning it is a lookup, not a search. A withdrawn message
//! leaves a placeholder in the queue, which is skipped; placeholders are removed when they are more than half of it.

use std::collections::VecDeque;

use super::{CallId, InFlightId, OutgoingMessage};
use crate::message::{Message, Notification};

#[derive(Debug)]
pub(super) struct Outbox {
    queue: VecDeque<QueueEntry>,
    /// One for each entry of `queue`. Separate, because every push and pop would move a larger entry.
    labels: VecDeque<EntryLabel>,
    last_position: u64,
    withdrawn: usize,
    /// The number of queued notifications that belong to a request.
    scoped_notifications: usize,
    bytes: usize,
    /// The number of bytes from which on the queue is full.
    limit: usize,
    /// The bytes that were queued since the queue is full.
    excess: usize,
}

/// The position of a message in the queue. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition(u64);

#[derive(Debug)]
struct EntryLabel {
    /// Ascending.
    position: QueuePosition,
    /// Zero for a withdrawn entry.
    bytes: usize,
}

#[derive(Debug)]
enum QueueEntry {
    Call(CallId),
    Message(OutgoingMessage),
    /// Withdrawn if its request is cancelled before it is sent.
    ScopedNotification(InFlightId, Notification),
    /// The placeholder of a withdrawn message.
    Withdrawn,
}

impl Outbox {
    /// Creates a queue that is full from `limit` bytes on.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            // Not more: most wires never have two queued messages.
            queue: VecDeque::with_capacity(1),
            labels: VecDeque::with_capacity(1),
            last_position: 0,
            withdrawn: 0,
            scoped_notifications: 0,
            bytes: 0,
            limit,
            excess: 0,
        }
    }

    /// Returns the position of the next message that is pushed.
    pub(super) fn next_position(&self) -> QueuePosition {
        QueuePosition(self.last_position + 1)
    }

    pub(super) fn push(&mut self, outgoing: OutgoingMessage) {
        self.queue.push_back(QueueEntry::Message(outgoing));
        // Measured in the queue: the message is large, and measuring it earlier would cost another move.
        let bytes = match self.queue.back() {
            Some(QueueEntry::Message(queued)) => queued.message.variable_len(),
            _ => 0,
        };
        self.label(bytes);
    }

    pub(super) fn push_notification_within(
        &mut self,
        within: InFlightId,
        notification: Notification,
    ) {
        self.scoped_notifications += 1;
        self.label(notification.encoded_len());
        self.queue
            .push_back(QueueEntry::ScopedNotification(within, notification));
    }

    /// Queues the request of a call; `bytes` is its length.
    pub(super) fn push_call(&mut self, call: CallId, bytes: usize) {
        self.label(bytes);
        self.queue.push_back(QueueEntry::Call(call));
    }

    fn label(&mut self, bytes: usize) {
        let position = self.next_position();
        self.last_position = position.0;
        // An entry takes memory even if its message is short.
        let bytes = bytes + PER_ENTRY;
        if self.is_full() {
            self.excess += bytes;
        }
        self.bytes += bytes;
        self.labels.push_back(EntryLabel { position, bytes });
    }

    /// Subtracts the bytes of a message that left the queue.
    fn free(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if !self.is_full() {
            self.excess = 0;
        }
    }

    /// Withdraws the message at a position. Returns whether it was still queued.
    pub(super) fn withdraw(&mut self, position: QueuePosition) -> bool {
        let found = self
            .labels
            .binary_search_by_key(&position, |label| label.position);
        let Ok(at) = found else {
            return false;
        };
        match self.queue.get_mut(at) {
            None | Some(QueueEntry::Withdrawn) => false,
            Some(queued) => {
                *queued = QueueEntry::Withdrawn;
                let bytes = std::mem::take(&mut self.labels[at].bytes);
                self.withdrawn += 1;
                self.free(bytes);
                self.compact();
                true
            }
        }
    }

    /// Withdraws the notifications of a cancelled request.
    pub(super) fn withdraw_notifications(&mut self, request: &InFlightId) {
        if self.scoped_notifications == 0 {
            return;
        }
        let mut freed = 0;
        for (queued, label) in self.queue.iter_mut().zip(&mut self.labels) {
            if matches!(queued, QueueEntry::ScopedNotification(within, _) if within == request) {
                *queued = QueueEntry::Withdrawn;
                freed += std::mem::take(&mut label.bytes);
                self.scoped_notifications -= 1;
                self.withdrawn += 1;
            }
        }
        self.free(freed);
        self.compact();
    }

    /// Removes the withdrawn entries once they are more than half of the queue. This bounds both the queue and the cost
    /// per withdrawal.
    fn compact(&mut self) {
        if self.withdrawn > self.queue.len() / 2 {
            let is_withdrawn = |queued: &QueueEntry| matches!(queued, QueueEntry::Withdrawn);
            let mut withdrawn = self.queue.iter().map(is_withdrawn);
            self.labels.retain(|_| withdrawn.next() == Some(false));
            self.queue.retain(|queued| !is_withdrawn(queued));
            self.withdrawn = 0;
        }
    }

    /// Returns the next message. `send` returns the request of a call; `answered` receives the request of a response.
    pub(super) fn pop(
        &mut self,
        mut send: impl FnMut(CallId) -> Option<OutgoingMessage>,
        answered: impl FnOnce(&InFlightId),
    ) -> Option<OutgoingMessage> {
        loop {
            let label = self.labels.pop_front()?;
            self.free(label.bytes);
            match self.queue.pop_front()? {
                QueueEntry::Message(outgoing) => {
                    if let (Message::Response(_), Some(id)) = (&outgoing.message, &outgoing.within)
                    {
                        answered(id);
                    }
                    return Some(outgoing);
                }
                QueueEntry::ScopedNotification(within, notification) => {
                    self.scoped_notifications -= 1;
                    return Some(OutgoingMessage::new(notification, Some(within)));
                }
                QueueEntry::Call(call) => {
                    if let Some(request) = send(call) {
                        return Some(request);
                    }
                }
                QueueEntry::Withdrawn => self.withdrawn -= 1,
            }
        }
    }

    /// Withdraws everything but the requests of calls.
    pub(super) fn retain_calls(&mut self) {
        let mut freed = 0;
        for (queued, label) in self.queue.iter_mut().zip(&mut self.labels) {
            if !matches!(queued, QueueEntry::Call(_) | QueueEntry::Withdrawn) {
                *queued = QueueEntry::Withdrawn;
                freed += std::mem::take(&mut label.bytes);
                self.withdrawn += 1;
            }
        }
        self.scoped_notifications = 0;
        self.excess = 0; // calls are queued only while the queue is not full
        self.free(freed);
        self.compact();
    }

    /// Drops everything, at the end of the wire.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit);
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.withdrawn
    }

    /// Returns the number of queued bytes, including the overhead of each entry.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the limit of bytes is reached.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.limit
    }

    /// Returns whether as many bytes as the limit were queued since the queue is full. A single long message, which is
    /// queued while it is not, has no part in that.
    pub(super) fn is_choked(&self) -> bool {
        self.is_full() && self.excess >= self.limit
    }
}

/// The overhead of an entry in bytes.
const PER_ENTRY: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Notification {
        Notification::new("note", None)
    }

    /// Queues a notification and returns its position.
    fn push(outbox: &mut Outbox) -> QueuePosition {
        let position = outbox.next_position();
        outbox.push(OutgoingMessage::new(note(), None));
        position
    }

    fn pop(outbox: &mut Outbox) -> Option<OutgoingMessage> {
        outbox.pop(|_| None, |_| {})
    }

    #[test]
    fn placeholders_are_removed_when_they_are_more_than_half_of_the_queue() {
        let mut outbox = Outbox::new(usize::MAX);
        let positions: Vec<_> = (0..10).map(|_| push(&mut outbox)).collect();

        let mut entries = Vec::new();
        for position in &positions[2..8] {
            assert!(outbox.withdraw(*position));
            entries.push((outbox.queue.len(), outbox.labels.len(), outbox.len()));
        }

        let with_placeholders = [9, 8, 7, 6, 5].map(|messages| (10, 10, messages));
        assert_eq!(entries[..5], with_placeholders);
        assert_eq!(entries[5], (4, 4, 4));
        assert!(!outbox.withdraw(positions[2]), "it was withdrawn before");
        assert!(
            outbox.withdraw(positions[8]),
            "it is found at its new place"
        );
        assert_eq!(std::iter::from_fn(|| pop(&mut outbox)).count(), 3);
        assert_eq!((outbox.len(), outbox.bytes()), (0, 0));
    }

    #[test]
    fn an_entry_counts_its_message_and_its_overhead_until_it_is_sent_or_withdrawn() {
        let mut outbox = Outbox::new(usize::MAX);
        push(&mut outbox);
        assert_eq!(outbox.bytes(), "note".len() + PER_ENTRY);
        let positions = [(); 3].map(|()| push(&mut outbox));
        outbox.withdraw(positions[0]);
        assert_eq!((outbox.len(), outbox.queue.len()), (3, 4));

        assert_eq!(std::iter::from_fn(|| pop(&mut outbox)).count(), 3);

        assert_eq!((outbox.len(), outbox.bytes()), (0, 0));
    }

    #[test]
    fn the_queue_is_choked_until_it_is_no_longer_full() {
        let mut outbox = Outbox::new(4 * PER_ENTRY);
        let is_choked = |outbox: &Outbox| (outbox.is_full(), outbox.is_choked());
        for _ in 0..4 {
            push(&mut outbox);
        }
        assert_eq!(is_choked(&outbox), (true, false));
        for _ in 0..4 {
            push(&mut outbox);
        }
        assert_eq!(is_choked(&outbox), (true, true));

        pop(&mut outbox);

        assert_eq!(is_choked(&outbox), (true, true), "it is still full");
        while outbox.is_full() {
            pop(&mut outbox);
        }
        push(&mut outbox);
        assert_eq!(is_choked(&outbox), (true, false), "it was read in between");
    }

    /// A cancel searches the queue only while there are such notifications.
    #[test]
    fn notifications_of_requests_are_counted_until_they_are_sent_or_withdrawn() {
        let mut requests = super::super::in_flight::InFlightRequests::default();
        let [first, second] = [1, 2].map(|id| requests.insert(id.into()));
        let mut outbox = Outbox::new(usize::MAX);
        for id in [&first, &second, &second] {
            outbox.push_notification_within(id.clone(), note());
        }

        outbox.withdraw_notifications(&second);
        assert_eq!((outbox.scoped_notifications, outbox.len()), (1, 1));
        assert_eq!(pop(&mut outbox).and_then(|sent| sent.within), Some(first));

        assert_eq!((outbox.scoped_notifications, outbox.len()), (0, 0));
        assert_eq!(outbox.bytes(), 0);
    }
}
