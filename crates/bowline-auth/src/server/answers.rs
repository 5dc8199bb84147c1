//! What an issuer said about tokens: shared by those who ask at the same time, and kept for a while if wanted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{AccessToken, Claims, Refused};

/// Answers by token, of which only the digest is kept. Bounded.
pub(super) struct Answers {
    lifetime: Duration,
    max: usize,
    table: Mutex<Table>,
}

type Answer = Result<Claims, Refused>;
type Asking = BoxFuture<'static, Answer>;
type Key = [u8; 32];

#[derive(Default)]
struct Table {
    asking: BTreeMap<Key, WeakShared<Asking>>,
    kept: BTreeMap<Key, (Instant, Answer)>,
    /// In the order in which they end.
    order: VecDeque<(Instant, Key)>,
}

impl Answers {
    pub(super) fn new(lifetime: Duration, max: usize) -> Self {
        Self {
            lifetime,
            max,
            table: Mutex::default(),
        }
    }

    pub(super) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// The answer that is kept, or that others wait for, or a new one.
    ///
    /// # Cancel safety
    ///
    /// Safe: a question is dropped with the last who waits for its answer.
    pub(super) async fn get<F>(&self, token: &AccessToken, ask: impl FnOnce() -> F) -> Answer
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let key: Key = Sha256::digest(token.as_str()).into();
        let asking = match self.find(&key) {
            Ok(answer) => return answer,
            Err(Some(asking)) => asking,
            Err(None) => self.begin(key, Box::pin(ask())),
        };
        let answer = asking.await;
        self.keep(key, &answer);
        answer
    }

    fn find(&self, key: &Key) -> Result<Answer, Option<Shared<Asking>>> {
        let table = self.lock();
        if let Some((_, answer)) = table
            .kept
            .get(key)
            .filter(|(until, _)| Instant::now() < *until)
        {
            return Ok(answer.clone());
        }
        Err(table.asking.get(key).and_then(WeakShared::upgrade))
    }

    fn begin(&self, key: Key, asking: Asking) -> Shared<Asking> {
        let asking = asking.shared();
        let mut table = self.lock();
        // Questions that were dropped unanswered leave their entries; there are never many more than questions.
        if table.asking.len() >= table.asking_limit() {
            table.asking.retain(|_, asking| asking.upgrade().is_some());
        }
        if let Some(weak) = asking.downgrade() {
            table.asking.insert(key, weak);
        }
        asking
    }

    fn keep(&self, key: Key, answer: &Answer) {
        let mut table = self.lock();
        table.asking.remove(&key);
        // That the issuer cannot be asked says nothing about the token.
        if self.lifetime.is_zero()
            || self.max == 0
            || matches!(answer, Err(Refused::Unavailable(_)))
        {
            return;
        }
        while let Some((at, old)) = table.order.front().copied() {
            let is_known = table.kept.contains_key(&key);
            if at > Instant::now() && (is_known || table.kept.len() < self.max) {
                break;
            }
            table.order.pop_front();
            table.kept.remove(&old);
        }
        if table.kept.contains_key(&key) {
            return; // by another who waited for the same answer
        }
        let until = Instant::now() + self.lifetime.min(LONGEST);
        table.order.push_back((until, key));
        table.kept.insert(key, (until, answer.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code that could panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn asking_limit(&self) -> usize {
        1024.max(self.kept.len())
    }
}

/// An answer is not kept longer than a day, whatever the setting.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn ask(answers: &Answers, token: &str, answer: Answer, asked: &AtomicUsize) -> Answer {
        let token = AccessToken::new(token);
        let question = || {
            asked.fetch_add(1, Ordering::SeqCst);
            std::future::ready(answer)
        };
        answers.get(&token, question).await
    }

    fn good() -> Answer {
        Ok(Claims::default())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_time_and_a_failure_is_not() {
        let (answers, asked) = (Answers::new(MINUTE, 10), AtomicUsize::new(0));

        for _ in 0..3 {
            assert!(ask(&answers, "a", good(), &asked).await.is_ok());
            let bad = Err(Refused::invalid("revoked"));
            assert!(ask(&answers, "b", bad, &asked).await.is_err());
            let down = Err(Refused::unavailable("down"));
            assert!(ask(&answers, "c", down, &asked).await.is_err());
        }
        assert_eq!(asked.swap(0, Ordering::SeqCst), 1 + 1 + 3);
        tokio::time::advance(MINUTE).await;
        let revoked = ask(&answers, "a", Err(Refused::invalid("revoked")), &asked).await;

        assert!(revoked.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_kept_than_there_is_room_for() {
        let (answers, asked) = (Answers::new(MINUTE, 10), AtomicUsize::new(0));

        for number in 0..1000 {
            let token = number.to_string();
            ask(&answers, &token, good(), &asked).await.unwrap();
        }

        let table = answers.lock();
        assert_eq!(table.kept.len(), 10);
        assert_eq!((table.order.len(), table.asking.len()), (10, 0));
    }

    #[tokio::test]
    async fn questions_that_nobody_waits_for_leave_nothing_behind() {
        let answers = Answers::new(MINUTE, 10);

        for number in 0..5000 {
            let token = AccessToken::new(&number.to_string());
            let never = answers.get(&token, std::future::pending);
            assert!(never.now_or_never().is_none());
        }

        assert!(answers.lock().asking.len() <= 1024);
    }
}
