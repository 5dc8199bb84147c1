//! [`KnownCallers`]: the callers of the front, in the version of a connection to an upstream.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bowline::exchange::{Caller, Dialect};
use bowline_core::era::RequestConverter;

use crate::tasks;

/// The last callers of the front that have used a connection, in the version of that connection. Large ones are not kept:
/// a client may send another one with each request, and its memory is counted only as long as the request is in flight.
pub(crate) struct KnownCallers {
    dialect: &'static Dialect,
    /// The first of each is that of the front, and belongs to its requests.
    callers: Mutex<Vec<(Weak<Caller>, Arc<Caller>)>>,
}

impl KnownCallers {
    pub(crate) fn new(dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            callers: Mutex::default(),
        }
    }

    /// Returns a caller of the front in the version of the connection. The same `Arc` for the same caller: the
    /// transports cache what they encode of it.
    pub(crate) fn convert(&self, front: &Arc<Caller>) -> Arc<Caller> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        // A `Weak` keeps the place of its caller from being used again, so the same pointer means the same caller.
        let known = callers
            .iter()
            .find(|(known, _)| std::ptr::eq(known.as_ptr(), &raw const **front));
        if let Some((_, known)) = known {
            return known.clone();
        }
        let caller = converted(front, self.dialect);
        if caller.bytes() > MAX_CALLER_BYTES {
            return Arc::new(caller);
        }
        // Each connection of a client has a caller of its own, and most of them describe the same program.
        let same = callers.iter().find(|(_, known)| **known == caller);
        let caller = same.map_or_else(|| Arc::new(caller), |(_, known)| known.clone());
        callers.retain(|(front, _)| front.strong_count() > 0);
        if callers.len() == MAX_CALLERS {
            callers.remove(0);
        }
        callers.push((Arc::downgrade(front), caller.clone()));
        caller
    }
}

fn converted(front: &Arc<Caller>, dialect: &'static Dialect) -> Caller {
    let mut caller = Caller::clone(&RequestConverter::default().convert_caller(front.clone()));
    if dialect.is_modern() {
        // A legacy client gets log messages without asking for them, and a modern server sends none unasked.
        caller.log_level = caller.least_log_level();
    }
    tasks::fit_caller(&mut caller, dialect);
    caller.dialect = dialect;
    caller
}

/// The callers of the front that are remembered: those that are likely to be active.
const MAX_CALLERS: usize = 64;
/// The length of a caller that is remembered. Those of real clients have some hundred bytes.
const MAX_CALLER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use bowline::types::Implementation;

    use super::*;

    fn caller(name: &str) -> Arc<Caller> {
        let mut caller = Caller::new(Dialect::LATEST);
        caller.implementation = Some(Implementation::new(name, "1"));
        Arc::new(caller)
    }

    #[test]
    fn equal_callers_are_converted_once() {
        let known = KnownCallers::new(Dialect::LATEST_LEGACY);
        let [one, same, other] = [caller("one"), caller("one"), caller("other")];

        let converted = [&one, &one, &same, &other].map(|caller| known.convert(caller));

        assert_eq!(converted[0].dialect, Dialect::LATEST_LEGACY);
        assert!(Arc::ptr_eq(&converted[0], &converted[1]));
        assert!(Arc::ptr_eq(&converted[0], &converted[2]));
        assert_ne!(converted[0], converted[3]);
    }

    #[test]
    fn a_large_caller_is_not_kept_in_memory() {
        let known = KnownCallers::new(Dialect::LATEST);
        let (small, large) = (caller("small"), caller(&"x".repeat(MAX_CALLER_BYTES)));

        let converted = [&small, &large].map(|caller| known.convert(caller));

        assert_eq!([&small, &large].map(Arc::strong_count), [1, 1]);
        assert_eq!(converted.each_ref().map(Arc::strong_count), [2, 1]);
        assert_eq!(*converted[1], *large);
    }
}
