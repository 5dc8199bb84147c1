//! Events of one session, kept so that a client that lost its connection can go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{Limit, Limits, Meters};

/// Keeps the events of one session's streams. Places count from 1 within a stream.
///
/// A stream is read from here whether it was interrupted or not, so this is also what is waiting for a
/// client that reads slowly: a store has a bound, and what it lost cuts that client off.
pub trait EventStore: Send + 'static {
    /// Keeps an event, and returns its place.
    fn append(&mut self, stream: u64, frame: Bytes) -> u64;

    /// Returns the event that follows a place of a stream.
    fn after(&self, stream: u64, place: u64) -> After;

    /// Forgets a stream.
    fn forget(&mut self, stream: u64);

    /// Returns how many bytes of memory the events take up: 0 if they are kept elsewhere.
    fn bytes(&self) -> usize {
        0
    }

    /// Drops the oldest event of all streams, and returns whether there was one. Called while the events of all sessions
    /// take up more than [`Limits::event_bytes`](crate::Limits::event_bytes).
    fn drop_oldest(&mut self) -> bool {
        false
    }
}

/// What follows a place of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "there is an event, there is none yet, or it is gone"
)]
pub enum After {
    /// This event.
    Event {
        /// Its own place.
        place: u64,
        /// The message it carries.
        frame: Bytes,
    },
    /// Nothing yet.
    Nothing,
    /// Something that was not kept.
    Lost,
}

/// Keeps events in memory: so many of them, and so many bytes. The oldest are lost first.
///
/// # Examples
///
/// ```
/// use bowline::http::legacy::{After, EventStore, MemoryStore};
///
/// let mut store = MemoryStore::new(1, 1024);
/// store.append(7, "first".into());
/// store.append(7, "second".into());
/// assert_eq!(store.after(7, 0), After::Lost);
/// assert!(matches!(store.after(7, 1), After::Event { place: 2, .. }));
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    streams: BTreeMap<u64, Kept>,
    /// The stream of each event, by the number of the event.
    order: BTreeMap<u64, u64>,
    last_number: u64,
    bytes: usize,
    max_events: usize,
    max_bytes: usize,
    /// Where lost events are counted.
    meters: Option<Arc<Meters>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// How many events were lost.
    lost: u64,
    /// Each with its number.
    frames: VecDeque<(u64, Bytes)>,
}

impl MemoryStore {
    /// A store within these bounds. The newest event is kept whatever its size.
    #[must_use]
    pub fn new(max_events: usize, max_bytes: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            order: BTreeMap::new(),
            last_number: 0,
            bytes: 0,
            max_events,
            max_bytes,
            meters: None,
        }
    }

    /// A store within the limits of a session, which counts what it loses.
    pub(super) fn within(limits: &Limits, meters: Arc<Meters>) -> Self {
        Self {
            meters: Some(meters),
            ..Self::new(limits.session_events, limits.session_event_bytes)
        }
    }

    /// Which bound is exceeded by more than the newest event.
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

impl Default for MemoryStore {
    fn default() -> Self {
        let limits = Limits::default();
        Self::new(limits.session_events, limits.session_event_bytes)
    }
}

impl EventStore for MemoryStore {
    fn append(&mut self, stream: u64, frame: Bytes) -> u64 {
        self.bytes += size(&frame);
        self.last_number += 1;
        self.order.insert(self.last_number, stream);
        let kept = self.streams.entry(stream).or_default();
        kept.frames.push_back((self.last_number, frame));
        let place = kept.lost + kept.frames.len() as u64;
        while let Some((limit, max)) = self.exceeded() {
            self.drop_oldest();
            if let Some(meters) = &self.meters {
                meters.refuse(limit, max);
            }
        }
        place
    }

    fn after(&self, stream: u64, place: u64) -> After {
        let Some(kept) = self.streams.get(&stream) else {
            return After::Nothing;
        };
        let Some(at) = place.checked_sub(kept.lost) else {
            return After::Lost;
        };
        let frame = usize::try_from(at).ok().and_then(|at| kept.frames.get(at));
        match frame {
            Some((_, frame)) => After::Event {
                place: place + 1,
                frame: frame.clone(),
            },
            None => After::Nothing,
        }
    }

    fn forget(&mut self, stream: u64) {
        let Some(kept) = self.streams.remove(&stream) else {
            return;
        };
        for (number, frame) in kept.frames {
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
        if let Some(kept) = self.streams.get_mut(&stream)
            && let Some((_, frame)) = kept.frames.pop_front()
        {
            kept.lost += 1;
            self.bytes -= size(&frame);
        }
        true
    }
}

/// What an event takes up.
fn size(frame: &Bytes) -> usize {
    PER_EVENT + frame.len()
}

/// What an event takes up besides its text.
const PER_EVENT: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(place: u64, text: &'static str) -> After {
        After::Event {
            place,
            frame: Bytes::from_static(text.as_bytes()),
        }
    }

    #[test]
    fn the_events_of_a_stream_follow_each_other() {
        let mut store = MemoryStore::default();
        store.append(1, "a".into());
        store.append(2, "other".into());
        store.append(1, "b".into());

        assert_eq!(store.after(1, 0), event(1, "a"));
        assert_eq!(store.after(1, 1), event(2, "b"));
        assert_eq!(store.after(1, 2), After::Nothing);
        assert_eq!(store.after(3, 0), After::Nothing);
    }

    #[test]
    fn the_oldest_event_is_lost_first_whatever_its_stream() {
        let mut store = MemoryStore::new(2, 1000);
        store.append(1, "a".into());
        store.append(2, "b".into());
        store.append(2, "c".into());

        assert_eq!(store.after(1, 0), After::Lost);
        assert_eq!(store.after(2, 0), event(1, "b"));
        assert_eq!(store.append(1, "d".into()), 2);
        assert_eq!(store.after(1, 1), event(2, "d"));
        assert_eq!(store.after(2, 0), After::Lost);
    }

    #[test]
    fn bytes_count_too_but_the_newest_event_always_fits() {
        let mut store = MemoryStore::new(10, PER_EVENT + 3);
        store.append(1, "aa".into());
        store.append(1, "far too long".into());

        assert_eq!(store.after(1, 0), After::Lost);
        assert_eq!(store.after(1, 1), event(2, "far too long"));
    }

    #[test]
    fn a_forgotten_stream_leaves_nothing_behind() {
        let mut store = MemoryStore::default();
        store.append(1, "a".into());
        store.append(2, "b".into());

        store.forget(1);
        store.forget(2);

        assert_eq!(
            (store.bytes, store.order.len(), store.streams.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn what_is_lost_is_counted_by_the_bound_that_was_exceeded() {
        let meters = Arc::<Meters>::default();
        let limits = Limits {
            session_events: 2,
            session_event_bytes: 2 * PER_EVENT + 10,
            ..Limits::default()
        };
        let mut store = MemoryStore::within(&limits, meters.clone());

        store.append(1, "a".into());
        store.append(1, "b".into());
        store.append(1, "c".into());
        store.append(1, "0123456789".into());

        assert_eq!(meters.refused(Limit::SessionEvents), 2);
        assert_eq!(meters.refused(Limit::SessionEventBytes), 1);
        assert_eq!(store.after(1, 3), event(4, "0123456789"));
    }

    #[test]
    fn events_can_be_dropped_oldest_first_until_there_is_none() {
        let mut store = MemoryStore::default();
        store.append(1, "a".into());
        store.append(2, "b".into());
        store.append(1, "c".into());
        store.forget(2);

        assert!(store.drop_oldest() && store.drop_oldest());

        assert!(!store.drop_oldest());
        assert_eq!(store.bytes(), 0);
        assert_eq!(store.after(1, 1), After::Lost);
        assert_eq!(store.after(1, 2), After::Nothing);
    }
}
