//! The laws of [`ReplicaMessages`] and [`Marks`], for the tests of every engine.
//!
//! ```
//! # // In a test of an engine:
//! bowline::cluster_laws!(bowline::testing::cluster_laws::MemoryFixture::default());
//! ```

#![allow(
    clippy::unwrap_used,
    reason = "a law that does not hold panics, as a failed test does"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::cluster::{
    Cluster, GroupId, Marks, MemoryCluster, MemoryLink, ReplicaId, ReplicaInbox, ReplicaMessages,
};
use crate::exchange::BoxFuture;
use crate::random;
use crate::sync::Mutex;

mod faults;
pub use faults::*;

mod marks;
pub use marks::*;

mod messages;
pub use messages::*;

mod restart;
pub use restart::*;

mod servers;
pub use servers::*;

/// Makes replicas of one cluster.
pub trait ClusterFixture: Send + Sync {
    /// Returns new replicas that share the engine, each with a connection of its own.
    fn replicas(&self, count: usize) -> BoxFuture<'_, Vec<EngineReplica>>;
}

/// A replica of an engine that is tested.
#[allow(clippy::exhaustive_structs, reason = "tests of engines construct it")]
pub struct EngineReplica {
    /// Its messages, not started.
    pub messages: Arc<dyn ReplicaMessages>,
    /// Its marks.
    pub marks: Arc<dyn Marks>,
    /// Its connection to the engine.
    pub link: Arc<dyn EngineLink>,
}

impl fmt::Debug for EngineReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.messages.replica();
        f.debug_tuple("EngineReplica").field(&id).finish()
    }
}

/// The connection of a replica to the engine.
pub trait EngineLink: Send + Sync {
    /// Breaks the connection, so that nothing arrives in either direction.
    fn cut(&self);

    /// Restores the connection.
    fn restore(&self);
}

impl EngineLink for MemoryLink {
    fn cut(&self) {
        Self::cut(self);
    }

    fn restore(&self) {
        Self::restore(self);
    }
}

/// Replicas of a [`MemoryCluster`].
#[derive(Clone, Debug, Default)]
pub struct MemoryFixture(MemoryCluster);

impl ClusterFixture for MemoryFixture {
    fn replicas(&self, count: usize) -> BoxFuture<'_, Vec<EngineReplica>> {
        let replicas = (0..count).map(|_| {
            let replica = self.0.replica().expect("there is randomness");
            EngineReplica {
                link: Arc::new(replica.link()),
                marks: self.0.marks(),
                messages: Arc::new(replica),
            }
        });
        Box::pin(std::future::ready(replicas.collect()))
    }
}

/// An inbox that records what it receives, and answers each message with itself in reverse.
#[derive(Default)]
struct RecordingInbox {
    record: Mutex<InboxRecord>,
    /// The answer to a message with this content never comes.
    unanswered: Option<Bytes>,
}

#[derive(Default)]
struct InboxRecord {
    /// How many times each message was received, by group.
    messages: BTreeMap<(GroupId, Bytes), usize>,
    asked: usize,
    missed: usize,
}

impl RecordingInbox {
    fn times(&self, group: &GroupId, message: &Bytes) -> usize {
        let record = self.record.lock();
        let times = record.messages.get(&(group.clone(), message.clone()));
        times.copied().unwrap_or_default()
    }

    fn asked(&self) -> usize {
        self.record.lock().asked
    }

    fn missed(&self) -> usize {
        self.record.lock().missed
    }

    fn distinct(&self, group: &GroupId) -> usize {
        let record = self.record.lock();
        record.messages.keys().filter(|key| key.0 == *group).count()
    }
}

impl ReplicaInbox for RecordingInbox {
    fn answer(&self, message: Bytes) -> BoxFuture<'static, Bytes> {
        if message == READY {
            return Box::pin(std::future::ready(READY));
        }
        self.record.lock().asked += 1;
        if self.unanswered.as_ref() == Some(&message) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            // The first messages are answered last.
            for _ in message.iter().take(1).flat_map(|first| 0..255 - first) {
                tokio::task::yield_now().await;
            }
            reversed(&message)
        })
    }

    fn deliver(&self, group: &GroupId, message: Bytes) {
        let mut record = self.record.lock();
        *record.messages.entry((group.clone(), message)).or_default() += 1;
    }

    fn missed(&self) {
        self.record.lock().missed += 1;
    }
}

/// A replica whose inbox is recorded.
struct Started {
    messages: Arc<dyn ReplicaMessages>,
    marks: Arc<dyn Marks>,
    link: Arc<dyn EngineLink>,
    inbox: Arc<RecordingInbox>,
}

impl Started {
    fn id(&self) -> ReplicaId {
        self.messages.replica()
    }
}

async fn started<const N: usize>(fixture: &dyn ClusterFixture) -> [Started; N] {
    let replicas = fixture.replicas(N).await.into_iter().map(|replica| {
        let inbox = Arc::new(RecordingInbox {
            unanswered: Some(UNANSWERED),
            ..RecordingInbox::default()
        });
        replica.messages.start(inbox.clone());
        Started {
            messages: replica.messages,
            marks: replica.marks,
            link: replica.link,
            inbox,
        }
    });
    let replicas: Vec<_> = replicas.collect();
    for replica in &replicas {
        until("the replica is connected", || async {
            let ready = replica.messages.ask(replica.id(), READY, WITHIN).await;
            ready.is_ok()
        })
        .await;
    }
    replicas
        .try_into()
        .ok()
        .expect("the fixture makes as many as it is asked for")
}

fn reversed(message: &Bytes) -> Bytes {
    message.iter().rev().copied().collect()
}

/// Returns a name that no other test uses: tests share an engine.
fn unique(prefix: &str) -> String {
    let random: [u8; 8] = random::bytes().expect("there is randomness");
    format!("{prefix} {:016x}", u64::from_be_bytes(random))
}

fn group() -> GroupId {
    GroupId::new("law", &unique("group"))
}

/// Evaluates a condition again and again; panics if it does not become true.
async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + WAIT_LIMIT;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while !condition().await {
        assert!(
            ticks.tick().await < deadline,
            "waited too long until {what}"
        );
    }
}

/// A [`Cluster`] of a replica, for the laws on both layers together.
fn cluster(replica: EngineReplica) -> Cluster {
    let messages = LinkedMessages {
        messages: replica.messages,
        _link: replica.link,
    };
    Cluster::new(messages, replica.marks, [7; 32])
}

/// Messages that keep their connection to the engine.
struct LinkedMessages {
    messages: Arc<dyn ReplicaMessages>,
    _link: Arc<dyn EngineLink>,
}

impl ReplicaMessages for LinkedMessages {
    fn replica(&self) -> ReplicaId {
        self.messages.replica()
    }

    fn start(&self, inbox: Arc<dyn ReplicaInbox>) {
        self.messages.start(inbox);
    }

    fn ask(
        &self,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<Bytes, crate::cluster::AskError>> {
        self.messages.ask(to, message, within)
    }

    fn tell<'a>(
        &'a self,
        group: &'a GroupId,
        message: Bytes,
    ) -> BoxFuture<'a, Result<(), crate::cluster::Unavailable>> {
        self.messages.tell(group, message)
    }

    fn join<'a>(
        &'a self,
        group: &'a GroupId,
    ) -> BoxFuture<'a, Result<(), crate::cluster::Unavailable>> {
        self.messages.join(group)
    }

    fn leave(&self, group: &GroupId) {
        self.messages.leave(group);
    }
}

/// The longest that a law waits for something that must happen.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
const WITHIN: Duration = Duration::from_secs(10);
const READY: Bytes = Bytes::from_static(b"ready");
const UNANSWERED: Bytes = Bytes::from_static(b"unanswered");

/// Makes a test of each law of [`cluster_laws`](crate::testing::cluster_laws) for a fixture.
#[macro_export]
macro_rules! cluster_laws {
    ($fixture:expr) => {
        $crate::cluster_laws! { @each $fixture;
            a_mark_is_set_by_exactly_one_replica
            an_existing_mark_keeps_its_value_and_lifetime
            a_mark_expires
            an_expired_mark_is_neither_renewed_nor_replaced_nor_removed
            a_renewed_mark_outlives_its_first_lifetime
            a_mark_is_replaced_only_if_it_has_the_expected_value
            of_many_replacements_of_one_value_one_wins
            a_mark_is_removed_only_if_it_has_the_expected_value
            a_mark_that_is_set_replaces_any_other
            a_stored_mark_is_read_by_every_replica_at_once
            keys_and_values_may_have_any_bytes
            a_mark_that_is_too_large_is_refused
            a_replica_answers_what_it_is_asked
            messages_of_every_size_arrive_unchanged
            answers_are_not_crossed
            a_replica_that_has_ended_is_gone
            an_answer_that_does_not_come_times_out
            an_abandoned_question_does_no_harm
            a_message_reaches_every_member_and_no_other_replica
            a_member_receives_each_message_once
            a_replica_that_has_left_receives_nothing
            a_replica_that_is_cut_off_fails_in_time
            a_restored_replica_is_told_that_it_missed_messages
            a_restored_replica_works_as_before
            members_learn_of_messages_that_a_sender_could_not_send
            no_message_is_lost_in_silence
            changes_reach_the_subscriptions_of_every_replica
            subscribers_learn_of_changes_during_an_outage
            an_effect_happens_once_at_whichever_replica
        }

        #[tokio::test]
        async fn a_replica_joins_and_tells_at_once_after_its_start() {
            let fixture = $fixture;
            $crate::testing::cluster_laws::a_replica_joins_and_tells_at_once_after_its_start(
                &fixture,
            )
            .await;
        }
    };
    (@each $fixture:expr; $($law:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                $crate::testing::cluster_laws::$law(&$fixture).await;
            }
        )*
    };
}

/// Makes a test of each law of an engine that is restarted or slow. `$engine` is its name at `cargo xtask cluster`, and
/// `$connect` an async function that returns an engine and the [`TcpProxy`](crate::testing::TcpProxy) in front of it.
#[macro_export]
macro_rules! engine_restart_laws {
    ($engine:literal, $connect:path) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn replicas_find_each_other_again_after_a_restart_of_the_engine() {
            use $crate::testing::cluster_laws as laws;
            laws::replicas_find_each_other_again_after_a_restart_of_the_engine($engine, $connect)
                .await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_slow_engine_delays_answers_and_loses_none() {
            use $crate::testing::cluster_laws as laws;
            laws::a_slow_engine_delays_answers_and_loses_none($connect).await;
        }
    };
}
