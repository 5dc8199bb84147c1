//! Events of one session, kept so that a client that lost its connection can go on.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// Keeps the events of one session's streams. Places count from 1 within a stream.
///
/// A stream is read from here whether it was interrupted or not, so this is also what is waiting for a
/// client that reads slowly: a store has a bound, and what it lost cuts that client off.
pub trait EventStore: Send + 'static {
    /// Keeps an event, and says its place.
    fn append(&mut self, stream: u64, frame: Bytes) -> u64;

    /// The event that follows a place of a stream.
    fn after(&self, stream: u64, place: u64) -> After;

    /// Forgets a stream.
    fn forget(&mut self, stream: u64);
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
    /// The stream of each event, oldest event first.
    order: VecDeque<u64>,
    bytes: usize,
    most_events: usize,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// How many events were lost.
    lost: u64,
    frames: VecDeque<Bytes>,
}

impl MemoryStore {
    /// A store within these bounds. The newest event is kept whatever its size.
    #[must_use]
    pub fn new(most_events: usize, most_bytes: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            most_events,
            most_bytes,
        }
    }

    fn lose_oldest(&mut self) {
        let oldest = self.order.pop_front();
        let Some(kept) = oldest.and_then(|stream| self.streams.get_mut(&stream)) else {
            return;
        };
        kept.lost += 1;
        self.bytes -= kept.frames.pop_front().map_or(0, |frame| frame.len());
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(MOST_EVENTS, MOST_BYTES)
    }
}

impl EventStore for MemoryStore {
    fn append(&mut self, stream: u64, frame: Bytes) -> u64 {
        self.bytes += frame.len();
        self.order.push_back(stream);
        let kept = self.streams.entry(stream).or_default();
        kept.frames.push_back(frame);
        let place = kept.lost + kept.frames.len() as u64;
        while (self.order.len() > self.most_events || self.bytes > self.most_bytes)
            && self.order.len() > 1
        {
            self.lose_oldest();
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
            Some(frame) => After::Event {
                place: place + 1,
                frame: frame.clone(),
            },
            None => After::Nothing,
        }
    }

    fn forget(&mut self, stream: u64) {
        if let Some(kept) = self.streams.remove(&stream) {
            self.bytes -= kept.frames.iter().map(Bytes::len).sum::<usize>();
            self.order.retain(|own| *own != stream);
        }
    }
}

const MOST_EVENTS: usize = 1024;
const MOST_BYTES: usize = 8 * 1024 * 1024;

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
        let mut store = MemoryStore::new(2, 100);
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
        let mut store = MemoryStore::new(10, 3);
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
}
