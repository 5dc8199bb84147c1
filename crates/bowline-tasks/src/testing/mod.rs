//! The laws of task stores, for the tests of every store: two handles to the same tasks, and a clock that a test moves.
//!
//! `task_store_laws!(make)` makes a test of each law; `make` is a function of [`StoreLimits`] that returns a
//! [`StoresFuture`].
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a law that does not hold panics, as a failed test does"
)]

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::{Clock, MemoryStore, NewTask, StoreLimits, TaskStore, Timestamp};
use crate::{ReplicaId, TaskId};
use bowline_types::Json;

pub mod laws;

/// Makes stores with these limits.
pub type MakeStores = dyn Fn(StoreLimits) -> StoresFuture + Sync;

/// The future of [`MakeStores`].
pub type StoresFuture = Pin<Box<dyn Future<Output = Stores> + Send>>;

/// Two processes with the same tasks.
#[allow(clippy::exhaustive_structs, reason = "tests of stores construct it")]
pub struct Stores {
    /// The store of one process.
    pub first: Arc<dyn TaskStore>,
    /// The store of the other.
    pub second: Arc<dyn TaskStore>,
    /// The clock of both.
    pub clock: TestClock,
    /// Removes the files of the stores when it is dropped.
    pub files: Box<dyn Any + Send>,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").finish_non_exhaustive()
    }
}

/// Two processes cannot share memory, so both handles are the same store.
#[must_use]
pub fn memory(limits: StoreLimits) -> StoresFuture {
    let clock = TestClock::default();
    let store = Arc::new(MemoryStore::new().limits(limits).clock(clock.clone()));
    let stores = Stores {
        first: store.clone(),
        second: store,
        clock,
        files: Box::new(()),
    };
    Box::pin(std::future::ready(stores))
}

/// A clock that stands still until a test moves it.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Moves the clock.
    pub fn advance(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap();
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1_785_240_000_000)))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A task with a lease of [`LEASE`].
///
/// # Panics
///
/// Without randomness.
pub fn task(owner: ReplicaId) -> NewTask {
    NewTask::new(TaskId::random().unwrap(), "convert", owner, LEASE)
}

/// A random replica.
#[must_use]
pub fn replica() -> ReplicaId {
    ReplicaId::random().unwrap()
}

/// Valid JSON.
#[must_use]
pub fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

/// The lease of [`task`].
pub const LEASE: Duration = Duration::from_secs(6);
/// One second.
pub const SECOND: Duration = Duration::from_secs(1);

/// Makes a test of each law for a function that makes stores.
#[macro_export]
macro_rules! task_store_laws {
    ($make:expr) => {
        $crate::task_store_laws! { @each $make;
            a_created_task_is_read_by_every_process
            an_id_is_used_once
            a_final_state_is_written_once
            of_many_final_states_one_wins
            an_update_needs_the_current_version
            a_change_without_effect_stores_nothing
            a_process_that_lost_its_lease_writes_nothing
            an_expired_lease_is_held_until_it_is_claimed
            an_entry_is_appended_once_by_kind_and_name
            a_journal_keeps_its_order_and_ends_with_its_task
            an_expired_lease_is_claimed_and_no_other
            every_task_is_claimed_by_one_process
            a_released_task_is_claimed_at_once
            renewing_returns_lost_and_changed_tasks
            an_expired_record_is_absent_and_then_removed
            a_question_is_answered_once_and_its_key_is_not_reused
            a_cancel_request_is_a_flag
            quotas_apply_to_each_principal
            a_full_store_lets_its_tasks_finish
            tasks_of_a_principal_are_listed_in_pages
            a_deleted_task_is_gone_with_its_journal
            an_absent_task_has_no_effects
            changes_reach_every_process
            a_listener_that_is_too_slow_is_told_so
        }
    };
    (@each $make:expr; $($law:ident)*) => {
        $(
            // On several threads: some laws are about what happens at the same time.
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $law() {
                $crate::testing::laws::$law(&$make).await;
            }
        )*
    };
}
