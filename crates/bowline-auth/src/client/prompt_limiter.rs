//! [`PromptLimiter`]: limits how often calls prompt the user, and remembers denials.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::scopes::Scopes;
use super::{Error, Result};

/// The recent prompts caused by calls, and the denied scopes.
pub(crate) struct PromptLimiter {
    max: usize,
    within: Duration,
    recent: VecDeque<Instant>,
    denied: Vec<(Scopes, Arc<Error>)>,
}

impl PromptLimiter {
    pub(crate) fn new(max: usize, within: Duration) -> Self {
        Self {
            max,
            within,
            recent: VecDeque::new(),
            denied: Vec::new(),
        }
    }

    /// Checks that a prompt for these scopes is within the limit and was not denied before.
    pub(crate) fn check(&mut self, wanted: &Scopes) -> Result<(), Arc<Error>> {
        let mut denied = self.denied.iter();
        // A superset of denied scopes counts as the same question.
        if let Some((_, error)) = denied.find(|(scopes, _)| wanted.contains_all(scopes)) {
            return Err(error.clone());
        }
        let within = self.within;
        self.recent.retain(|at| at.elapsed() < within);
        if self.recent.len() >= self.max {
            let max = self.max;
            return Err(Arc::new(Error::TooManyPrompts { max, within }));
        }
        Ok(())
    }

    /// Records a prompt.
    pub(crate) fn count(&mut self) {
        self.recent.push_back(Instant::now());
        if self.recent.len() > self.max {
            self.recent.pop_front();
        }
    }

    /// Records that the user denied these scopes.
    pub(crate) fn remember_denial(&mut self, wanted: Scopes, error: &Arc<Error>) {
        self.denied.retain(|(scopes, _)| *scopes != wanted);
        self.denied.push((wanted, error.clone()));
        // Bounded, because the server chooses the scopes.
        if self.denied.len() > MAX_DENIALS {
            self.denied.remove(0);
        }
    }

    /// Clears the recorded prompts and denials.
    pub(crate) fn reset(&mut self) {
        self.recent.clear();
        self.denied.clear();
    }
}

const MAX_DENIALS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn denial() -> Arc<Error> {
        Arc::new(Error::denied(
            "authorization request",
            "access_denied",
            None,
        ))
    }

    #[tokio::test(start_paused = true)]
    async fn prompts_are_limited_per_period() {
        let mut limiter = PromptLimiter::new(2, MINUTE);
        let none = Scopes::default();
        let prompt = |limiter: &mut PromptLimiter| {
            let checked = limiter.check(&none);
            checked.map(|()| limiter.count())
        };

        assert!(prompt(&mut limiter).is_ok());
        tokio::time::advance(MINUTE / 2).await;
        assert!(prompt(&mut limiter).is_ok());
        let third = prompt(&mut limiter).unwrap_err();
        assert!(matches!(*third, Error::TooManyPrompts { max: 2, .. }));
        tokio::time::advance(MINUTE / 2).await;
        assert!(prompt(&mut limiter).is_ok());
        assert!(prompt(&mut limiter).is_err());
        limiter.reset();
        assert!(prompt(&mut limiter).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn denied_scopes_are_not_prompted_for_again() {
        let mut limiter = PromptLimiter::new(100, MINUTE);
        limiter.remember_denial(Scopes::parse("write"), &denial());

        assert!(limiter.check(&Scopes::parse("read")).is_ok());
        assert!(limiter.check(&Scopes::parse("write")).is_err());
        assert!(limiter.check(&Scopes::parse("delete write")).is_err());
        tokio::time::advance(MINUTE * 1000).await;
        assert!(limiter.check(&Scopes::parse("write")).is_err());
        limiter.reset();
        assert!(limiter.check(&Scopes::parse("write")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn recorded_denials_are_bounded() {
        let mut limiter = PromptLimiter::new(100, MINUTE);

        for number in 0..1000 {
            limiter.remember_denial(Scopes::parse(&number.to_string()), &denial());
        }

        assert_eq!(limiter.denied.len(), MAX_DENIALS);
    }
}
