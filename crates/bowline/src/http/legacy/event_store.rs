//! Stores of a session's SSE events, from which a client that lost its connection resumes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{Limit, Limits, UsageCounters};

/// Stores the SSE events of one session's streams. `position` is the position of an event in its stream, from 1.
///
/// Every stream is read from here, interrupted or not, so the store also buffers for slow clients. It must be bounded, and
/// drop the events of a stream in their order. A client whose next event was dropped gets the rest of the response to its
/// call, which ends with the result; the stream of notifications ends instead.
pub trait EventStore: Send + 'static {
    /// Stores an event, and returns its position.
    fn append(&mut self, stream: u64, frame: Bytes) -> u64;

    /// Returns the event after a position of a stream.
    fn after(&self, stream: u64, position: u64) -> NextStored;

    /// Drops a stream and its events.
    fn remove_stream(&mut self, stream: u64);

    /// Returns the bytes of memory that the events take up: 0 if they are stored elsewhere.
    fn bytes(&self) -> usize {
        0
    }

    /// Drops the oldest event of all streams, and returns whether there was one. Called while all sessions together
    /// exceed [`Limits::event_bytes`](crate::Limits::event_bytes).
    fn drop_oldest(&mut self) -> bool {
        false
    }
}

/// The result of [`EventStore::after`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an event exists, does not exist yet, or was dropped"
)]
pub enum NextStored {
    /// The next event.
    Event {
        /// Its position.
        position: u64,
        /// The JSON-RPC message.
        frame: Bytes,
    },
    /// No further event yet.
    NotYet,
    /// The next event was dropped.
    Lost,
}

/// Stores events in memory, bounded by count and bytes. The oldest are dropped first.
///
/// # Examples
///
/// ```
/// use bowline::http::legacy::{EventStore, MemoryEventStore, NextStored};
///
/// let mut store = MemoryEventStore::new(1, 1024);
/// store.append(7, "first".into());
/// store.append(7, "second".into());
/// assert_eq!(store.after(7, 0), NextStored::Lost);
/// assert!(matches!(store.after(7, 1), NextStored::Event { position: 2, .. }));
/// ```
#[derive(Debug)]
pub struct MemoryEventStore {
    streams: BTreeMap<u64, StoredStream>,
    /// The stream of each event, by the event's number.
    order: BTreeMap<u64, u64>,
    last_number: u64,
    bytes: usize,
    max_events: usize,
    max_bytes: usize,
    /// Counts dropped events.
    counters: Option<Arc<UsageCounters>>,
}

#[derive(Debug, Default)]
struct StoredStream {
    /// The number of dropped events.
    lost: u64,
    /// Each with its number.
    frames: VecDeque<(u64, Bytes)>,
}

impl MemoryEventStore {
    /// Creates a store with these bounds. The newest event is stored whatever its size.
    #[must_use]
    pub fn new(max_events: usize, max_bytes: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            order: BTreeMap::new(),
            last_number: 0,
            bytes: 0,
            max_events,
            max_bytes,
            counters: None,
        }
    }

    /// Creates a store with the limits of a session, which counts dropped events.
    pub(super) fn with_limits(limits: &Limits, counters: Arc<UsageCounters>) -> Self {
        Self {
            counters: Some(counters),
            ..Self::new(limits.session_events, limits.session_event_bytes)
        }
    }

    /// Returns the bound that is exceeded, unless the newest event is the only one.
    fn exceeded(&self) -> Option<(Limit, usize)> {
        if self.order.len() <= 1 {
            None
        } else if self.order.len() > self.max_events {
            Some((Limit::SessionEvents, self.max_events))
        } else if self.bytes > self.max_bytes {
            Some((Limit::SessionEventBytes, self.max_bytes))
        } else {
            None
        }
    }
}

impl Default for MemoryEventStore {
    fn default() -> Self {
        let limits = Limits::default();
        Self::new(limits.session_events, limits.session_event_bytes)
    }
}

impl EventStore for MemoryEventStore {
    fn append(&mut self, stream: u64, frame: Bytes) -> u64 {
        self.bytes += size(&frame);
        self.last_number += 1;
        self.order.insert(self.last_number, stream);
        let stored = self.streams.entry(stream).or_default();
        stored.frames.push_back((self.last_number, frame));
        let position = stored.lost + stored.frames.len() as u64;
        while let Some((limit, max)) = self.exceeded() {
            self.drop_oldest();
            if let Some(counters) = &self.counters {
                counters.refuse(limit, max);
            }
        }
        position
    }

    fn after(&self, stream: u64, position: u64) -> NextStored {
        let Some(stored) = self.streams.get(&stream) else {
            return NextStored::NotYet;
        };
        let Some(at) = position.checked_sub(stored.lost) else {
            return NextStored::Lost;
        };
        let frame = usize::try_from(at)
            .ok()
            .and_then(|at| stored.frames.get(at));
        match frame {
            Some((_, frame)) => NextStored::Event {
                position: position + 1,
                frame: frame.clone(),
            },
            None => NextStored::NotYet,
        }
    }

    fn remove_stream(&mut self, stream: u64) {
        let Some(stored) = self.streams.remove(&stream) else {
            return;
        };
        for (number, frame) in stored.frames {
            self.order.remove(&number);
            self.bytes -= size(&frame);
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, stream)) = self.order.pop_first() else {
            return false;
        };
        if let Some(stored) = self.streams.get_mut(&stream)
            && let Some((_, frame)) = stored.frames.pop_front()
        {
            stored.lost += 1;
            self.bytes -= size(&frame);
        }
        true
    }
}

/// Returns the bytes that an event takes up.
fn size(frame: &Bytes) -> usize {
    PER_EVENT + frame.len()
}

/// Estimated bytes of an event without its text.
const PER_EVENT: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64, text: &'static str) -> NextStored {
        NextStored::Event {
            position,
            frame: Bytes::from_static(text.as_bytes()),
        }
    }

    #[test]
    fn events_of_a_stream_are_returned_in_order() {
        let mut store = MemoryEventStore::default();
        store.append(1, "a".into());
        store.append(2, "other".into());
        store.append(1, "b".into());

        assert_eq!(store.after(1, 0), event(1, "a"));
        assert_eq!(store.after(1, 1), event(2, "b"));
        assert_eq!(store.after(1, 2), NextStored::NotYet);
        assert_eq!(store.after(3, 0), NextStored::NotYet);
    }

    #[test]
    fn the_oldest_event_is_lost_first_whatever_its_stream() {
        let mut store = MemoryEventStore::new(2, 1000);
        store.append(1, "a".into());
        store.append(2, "b".into());
        store.append(2, "c".into());

        assert_eq!(store.after(1, 0), NextStored::Lost);
        assert_eq!(store.after(2, 0), event(1, "b"));
        assert_eq!(store.append(1, "d".into()), 2);
        assert_eq!(store.after(1, 1), event(2, "d"));
        assert_eq!(store.after(2, 0), NextStored::Lost);
    }

    #[test]
    fn bytes_count_too_but_the_newest_event_always_fits() {
        let mut store = MemoryEventStore::new(10, PER_EVENT + 3);
        store.append(1, "aa".into());
        store.append(1, "far too long".into());

        assert_eq!(store.after(1, 0), NextStored::Lost);
        assert_eq!(store.after(1, 1), event(2, "far too long"));
    }

    #[test]
    fn a_removed_stream_frees_its_memory() {
        let mut store = MemoryEventStore::default();
        store.append(1, "a".into());
        store.append(2, "b".into());

        store.remove_stream(1);
        store.remove_stream(2);

        assert_eq!(
            (store.bytes, store.order.len(), store.streams.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn dropped_events_are_counted_by_the_exceeded_bound() {
        let counters = Arc::<UsageCounters>::default();
        let limits = Limits {
            session_events: 2,
            session_event_bytes: 2 * PER_EVENT + 10,
            ..Limits::default()
        };
        let mut store = MemoryEventStore::with_limits(&limits, counters.clone());

        store.append(1, "a".into());
        store.append(1, "b".into());
        store.append(1, "c".into());
        store.append(1, "0123456789".into());

        assert_eq!(counters.refused(Limit::SessionEvents), 2);
        assert_eq!(counters.refused(Limit::SessionEventBytes), 1);
        assert_eq!(store.after(1, 3), event(4, "0123456789"));
    }

    #[test]
    fn events_can_be_dropped_oldest_first_until_there_is_none() {
        let mut store = MemoryEventStore::default();
        store.append(1, "a".into());
        store.append(2, "b".into());
        store.append(1, "c".into());
        store.remove_stream(2);

        assert!(store.drop_oldest() && store.drop_oldest());

        assert!(!store.drop_oldest());
        assert_eq!(store.bytes(), 0);
        assert_eq!(store.after(1, 1), NextStored::Lost);
        assert_eq!(store.after(1, 2), NextStored::NotYet);
    }
}
