//! How often a person is asked without having asked for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::scopes::Scopes;
use super::{Error, Result};

/// The prompts that calls caused, and those that a person said no to.
pub(crate) struct Prompts {
    max: usize,
    within: Duration,
    recent: VecDeque<Instant>,
    denied: Vec<(Scopes, Arc<Error>)>,
}

impl Prompts {
    pub(crate) fn new(max: usize, within: Duration) -> Self {
        Self {
            max,
            within,
            recent: VecDeque::new(),
            denied: Vec::new(),
        }
    }

    /// Refuses a prompt for these scopes if there were too many, or if a person has refused them.
    pub(crate) fn check(&mut self, wanted: &Scopes) -> Result<(), Arc<Error>> {
        let mut denied = self.denied.iter();
        // Asking for what was denied and for more is asking again.
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

    /// Counts a prompt.
    pub(crate) fn count(&mut self) {
        self.recent.push_back(Instant::now());
        if self.recent.len() > self.max {
            self.recent.pop_front();
        }
    }

    /// Remembers that a person said no.
    pub(crate) fn remember_denial(&mut self, wanted: Scopes, error: &Arc<Error>) {
        self.denied.retain(|(scopes, _)| *scopes != wanted);
        self.denied.push((wanted, error.clone()));
        // The server chooses the scopes that it asks for; it does not choose how much is remembered.
        if self.denied.len() > MAX_DENIALS {
            self.denied.remove(0);
        }
    }

    /// Begins anew: the application asks for it.
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
        Arc::new(Error::denied("access_denied", None))
    }

    #[tokio::test(start_paused = true)]
    async fn prompts_have_a_budget_that_comes_back_with_time() {
        let mut prompts = Prompts::new(2, MINUTE);
        let none = Scopes::default();
        let ask = |prompts: &mut Prompts| {
            let asked = prompts.check(&none);
            asked.map(|()| prompts.count())
        };

        assert!(ask(&mut prompts).is_ok());
        tokio::time::advance(MINUTE / 2).await;
        assert!(ask(&mut prompts).is_ok());
        let third = ask(&mut prompts).unwrap_err();
        assert!(matches!(*third, Error::TooManyPrompts { max: 2, .. }));
        tokio::time::advance(MINUTE / 2).await;
        assert!(ask(&mut prompts).is_ok());
        assert!(ask(&mut prompts).is_err());
        prompts.reset();
        assert!(ask(&mut prompts).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_denied_is_not_asked_for_again_and_something_else_is() {
        let mut prompts = Prompts::new(100, MINUTE);
        prompts.remember_denial(Scopes::parse("write"), &denial());

        assert!(prompts.check(&Scopes::parse("read")).is_ok());
        assert!(prompts.check(&Scopes::parse("write")).is_err());
        assert!(prompts.check(&Scopes::parse("delete write")).is_err());
        tokio::time::advance(MINUTE * 1000).await;
        assert!(prompts.check(&Scopes::parse("write")).is_err());
        prompts.reset();
        assert!(prompts.check(&Scopes::parse("write")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_ever_new_scopes_does_not_fill_the_memory() {
        let mut prompts = Prompts::new(100, MINUTE);

        for number in 0..1000 {
            prompts.remember_denial(Scopes::parse(&number.to_string()), &denial());
        }

        assert_eq!(prompts.denied.len(), MAX_DENIALS);
    }
}
