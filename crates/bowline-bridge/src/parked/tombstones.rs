//! Tombstones: why each ended call ended, until the last of its sealed states has expired.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::entry::Serial;
use super::refusal::Refusal;

/// Why a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its outcome was passed to the client.
    Answered,
    /// It waited for a retry until its timeout.
    Expired,
    /// Its front was dropped, or it could not be parked.
    Cancelled,
    /// Its keeper has ended, such as by a panic or when the bridge shuts down.
    Lost,
}

/// The tombstones by serial.
///
/// They are few bytes each and their number is limited, so they are not charged. When there are too many, the oldest is
/// removed, and [`CallTable`](super::table::CallTable) answers its retries with `expired`.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    by_serial: BTreeMap<Serial, (Ended, Instant)>,
    by_expiry: BTreeSet<(Instant, Serial)>,
}

impl Tombstones {
    pub(super) fn insert(&mut self, serial: Serial, ended: Ended, until: Instant) {
        if self.by_serial.len() >= MAX_TOMBSTONES
            && let Some((_, oldest)) = self.by_expiry.pop_first()
        {
            self.by_serial.remove(&oldest);
        }
        self.by_serial.insert(serial, (ended, until));
        self.by_expiry.insert((until, serial));
    }

    pub(super) fn remove_expired(&mut self, now: Instant) {
        while let Some(&(until, serial)) = self.by_expiry.first()
            && until <= now
        {
            self.by_expiry.pop_first();
            self.by_serial.remove(&serial);
        }
    }

    pub(super) fn find(&self, serial: Serial) -> Option<Ended> {
        self.by_serial.get(&serial).map(|&(ended, _)| ended)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_serial.len()
    }
}

impl From<Ended> for Refusal {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Answered => Self::AlreadyUsed,
            Ended::Expired => Self::Expired,
            Ended::Cancelled => Self::Cancelled,
            Ended::Lost => Self::Lost,
        }
    }
}

/// About 8 MiB.
const MAX_TOMBSTONES: usize = 65_536;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tombstone_stays_until_its_time() {
        let now = Instant::now();
        let mut tombstones = Tombstones::default();
        tombstones.insert(Serial(1), Ended::Expired, now + Duration::from_secs(2));
        tombstones.insert(Serial(2), Ended::Lost, now + Duration::from_secs(1));

        tombstones.remove_expired(now + Duration::from_secs(1));

        assert_eq!(tombstones.find(Serial(1)), Some(Ended::Expired));
        assert_eq!(tombstones.find(Serial(2)), None);
    }

    #[test]
    fn the_oldest_of_too_many_tombstones_is_removed() {
        let now = Instant::now();
        let mut tombstones = Tombstones::default();
        for serial in 0..=MAX_TOMBSTONES as u64 {
            let until = now + Duration::from_millis(serial);
            tombstones.insert(Serial(serial), Ended::Expired, until);
        }

        assert_eq!(tombstones.len(), MAX_TOMBSTONES);
        assert_eq!(tombstones.find(Serial(0)), None);
        assert_eq!(tombstones.by_expiry.len(), tombstones.by_serial.len());
    }
}
