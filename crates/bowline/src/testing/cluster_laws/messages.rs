//! The laws of [`ReplicaMessages`](crate::cluster::ReplicaMessages).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{
    ClusterFixture, RecordingInbox, Started, UNANSWERED, WITHIN, group, reversed, started, until,
};
use crate::cluster::{AskError, GroupId, MAX_MESSAGE_BYTES, ReplicaId};

/// An answer comes from the replica that was asked, which may be the asking one.
pub async fn a_replica_answers_what_it_is_asked(fixture: &dyn ClusterFixture) {
    let [first, second, third] = &started(fixture).await;

    for to in [second, third, first] {
        let answer = first.messages.ask(to.id(), "abc".into(), WITHIN).await;
        assert_eq!(answer.unwrap(), "cba");
    }

    let asked = [first, second, third].map(|replica| replica.inbox.asked());
    assert_eq!(asked, [1, 1, 1]);
}

/// Joining and telling do not depend on what the engine's own tasks have done since
/// [`start`](crate::cluster::ReplicaMessages::start). Runs on one thread, so that they have done nothing.
pub async fn a_replica_joins_and_tells_at_once_after_its_start(fixture: &dyn ClusterFixture) {
    let replica = fixture.replicas(1).await.remove(0);
    let (group, other, message) = (group(), group(), Bytes::from("first"));
    let inbox = Arc::new(RecordingInbox::default());

    replica.messages.start(inbox.clone());
    // Polled once before anything else runs.
    let (joined, told) = tokio::join!(
        replica.messages.join(&group),
        replica.messages.tell(&other, message.clone())
    );
    joined.unwrap();
    told.unwrap();

    replica
        .messages
        .tell(&group, message.clone())
        .await
        .unwrap();
    until("the message arrives", || async {
        inbox.times(&group, &message) == 1
    })
    .await;
}

/// A message may have any bytes, and up to [`MAX_MESSAGE_BYTES`].
pub async fn messages_of_every_size_arrive_unchanged(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let group = group();
    second.messages.join(&group).await.unwrap();
    let all: Bytes = (0..=255).collect();
    let largest = Bytes::from(vec![255; MAX_MESSAGE_BYTES]);

    for message in [Bytes::new(), all, largest] {
        let answer = first
            .messages
            .ask(second.id(), message.clone(), WITHIN)
            .await;
        assert!(answer.unwrap() == reversed(&message));
        first.messages.tell(&group, message.clone()).await.unwrap();
        until("the message arrives", || async {
            second.inbox.times(&group, &message) == 1
        })
        .await;
    }

    let too_large = Bytes::from(vec![0; MAX_MESSAGE_BYTES + 1]);
    let refused = first.messages.ask(second.id(), too_large, WITHIN).await;
    assert!(
        matches!(refused, Err(AskError::TooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(second.inbox.asked(), 3);
}

/// Every question gets its own answer, whatever the order of the answers.
pub async fn answers_are_not_crossed(fixture: &dyn ClusterFixture) {
    let replicas = started::<2>(fixture).await;
    let mut asking = JoinSet::new();
    for number in 0..100_u8 {
        let asker = usize::from(number) % 2;
        let (messages, to) = (replicas[asker].messages.clone(), replicas[1 - asker].id());
        let message = Bytes::from(vec![number, 0, number, 1]);
        asking.spawn(async move {
            let answer = messages.ask(to, message.clone(), WITHIN).await;
            (message, answer)
        });
    }

    for (message, answer) in asking.join_all().await {
        assert_eq!(answer.unwrap(), reversed(&message));
    }
}

/// A replica that was dropped is reported as gone, as is one that never was.
pub async fn a_replica_that_has_ended_is_gone(fixture: &dyn ClusterFixture) {
    let [first, second, third] = started(fixture).await;
    let never = ReplicaId::random().unwrap();
    let ended = second.id();
    let alive = first.messages.ask(ended, "a".into(), WITHIN).await;
    assert_eq!(alive.unwrap(), "a");

    drop(second);

    let unknown = first.messages.ask(never, "a".into(), WITHIN).await;
    assert!(matches!(unknown, Err(AskError::ReplicaGone)), "{unknown:?}");
    // The engine may need a moment to notice.
    until("the replica is gone", || async {
        let gone = first.messages.ask(ended, "a".into(), WITHIN).await;
        matches!(gone, Err(AskError::ReplicaGone))
    })
    .await;
    let other = first.messages.ask(third.id(), "ab".into(), WITHIN).await;
    assert_eq!(other.unwrap(), "ba");
}

/// A question ends when its time is over.
pub async fn an_answer_that_does_not_come_times_out(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let (begun, within) = (Instant::now(), Duration::from_millis(300));

    let answer = first.messages.ask(second.id(), UNANSWERED, within).await;

    assert!(matches!(answer, Err(AskError::TimedOut)), "{answer:?}");
    assert!(begun.elapsed() >= within);
    assert!(begun.elapsed() < within + WITHIN);
    let next = first.messages.ask(second.id(), "ab".into(), WITHIN).await;
    assert_eq!(next.unwrap(), "ba");
}

/// A dropped question is at most received, and affects no other.
pub async fn an_abandoned_question_does_no_harm(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;

    for _ in 0..20 {
        let asking = first.messages.ask(second.id(), UNANSWERED, WITHIN);
        let abandoned = tokio::time::timeout(Duration::from_millis(1), asking).await;
        assert!(abandoned.is_err());
    }

    let next = first.messages.ask(second.id(), "ab".into(), WITHIN).await;
    assert_eq!(next.unwrap(), "ba");
    assert!(second.inbox.asked() <= 21);
}

/// A message to a group is received by its members, also by its sender, and by no other replica.
pub async fn a_message_reaches_every_member_and_no_other_replica(fixture: &dyn ClusterFixture) {
    let [first, second, third] = &started(fixture).await;
    let (group, other) = (group(), group());
    for member in [first, second] {
        member.messages.join(&group).await.unwrap();
    }
    third.messages.join(&other).await.unwrap();

    // Senders need not be members of the group.
    for (sender, message) in [(first, "from a member"), (third, "from another")] {
        let message = Bytes::from(message);
        sender.messages.tell(&group, message.clone()).await.unwrap();
        for member in [first, second] {
            received(member, &group, &message).await;
        }
    }

    // When this message has arrived, the third replica is known to receive messages.
    first.messages.tell(&other, "last".into()).await.unwrap();
    received(third, &other, &"last".into()).await;
    assert_eq!(third.inbox.distinct(&group), 0);
    assert_eq!(first.inbox.distinct(&other), 0);
}

/// Messages are not repeated, also not for a replica that joins twice.
pub async fn a_member_receives_each_message_once(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let group = group();
    for _ in 0..2 {
        second.messages.join(&group).await.unwrap();
    }

    for number in 0..100_u8 {
        let message = Bytes::from(vec![number]);
        first.messages.tell(&group, message).await.unwrap();
    }
    until("all messages arrive", || async {
        second.inbox.distinct(&group) == 100
    })
    .await;

    // A question is answered after them, so that a second copy would have arrived.
    first
        .messages
        .ask(second.id(), "a".into(), WITHIN)
        .await
        .unwrap();
    for number in 0..100_u8 {
        assert_eq!(second.inbox.times(&group, &Bytes::from(vec![number])), 1);
    }
}

/// Leaving ends the membership after a moment, and joining again restores it.
pub async fn a_replica_that_has_left_receives_nothing(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let group = group();
    for member in [first, second] {
        member.messages.join(&group).await.unwrap();
    }

    second.messages.leave(&group);

    let mut number = 0_u32;
    loop {
        number += 1;
        let message = Bytes::copy_from_slice(&number.to_be_bytes());
        first.messages.tell(&group, message.clone()).await.unwrap();
        received(first, &group, &message).await;
        first
            .messages
            .ask(second.id(), "a".into(), WITHIN)
            .await
            .unwrap();
        if second.inbox.times(&group, &message) == 0 {
            break;
        }
        assert!(number < 1000, "the replica is still a member");
    }
    second.messages.join(&group).await.unwrap();
    first.messages.tell(&group, "again".into()).await.unwrap();
    received(second, &group, &"again".into()).await;
}

async fn received(replica: &Started, group: &GroupId, message: &Bytes) {
    until("the message arrives", || async {
        replica.inbox.times(group, message) == 1
    })
    .await;
}
