//! [`LogLevels`]: the log levels of the callers that share a connection to a legacy server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::types::LoggingLevel;

/// How many calls in flight want each level.
#[derive(Debug, Default)]
pub(crate) struct LogLevels(Mutex<BTreeMap<LoggingLevel, usize>>);

impl LogLevels {
    /// Returns the level that satisfies all callers.
    pub(crate) fn most_talkative(&self) -> Option<LoggingLevel> {
        self.lock().keys().next().copied()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LoggingLevel, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The level of one call, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it makes the server forget the level"]
pub(crate) struct LogLevelUse {
    levels: Arc<LogLevels>,
    level: LoggingLevel,
}

impl LogLevelUse {
    pub(crate) fn new(levels: &Arc<LogLevels>, level: LoggingLevel) -> Self {
        *levels.lock().entry(level).or_default() += 1;
        Self {
            levels: levels.clone(),
            level,
        }
    }
}

impl Drop for LogLevelUse {
    fn drop(&mut self) {
        let mut levels = self.levels.lock();
        if let Some(calls) = levels.get_mut(&self.level) {
            *calls -= 1;
            if *calls == 0 {
                levels.remove(&self.level);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_talkative_of_the_present_levels_counts() {
        let levels = Arc::new(LogLevels::default());
        let wanted = [
            LoggingLevel::Error,
            LoggingLevel::Debug,
            LoggingLevel::Debug,
        ];
        let [error, first, second] = wanted.map(|level| LogLevelUse::new(&levels, level));
        drop(first);
        assert_eq!(levels.most_talkative(), Some(LoggingLevel::Debug));
        drop(second);
        assert_eq!(levels.most_talkative(), Some(LoggingLevel::Error));
        drop(error);
        assert_eq!(levels.most_talkative(), None);
    }
}
