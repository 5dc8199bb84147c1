//! The laws of a broken connection to the engine.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{ClusterFixture, Started, WAIT_LIMIT, WITHIN, cluster, group, started, unique, until};
use crate::cluster::{Cluster, GroupEvent, GroupId, GroupReceiver, MarkError};

/// Nothing waits for ever while the engine is away.
pub async fn a_replica_that_is_cut_off_fails_in_time(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let (group, other, key) = (group(), group(), unique("cut"));
    first.messages.join(&group).await.unwrap();

    first.link.cut();

    let begun = Instant::now();
    let within = Duration::from_secs(1);
    let asking = first.messages.ask(second.id(), "a".into(), within);
    let telling = first.messages.tell(&group, "a".into());
    let joining = first.messages.join(&other);
    let marking = first.marks.set(key.as_bytes(), b"", WITHIN);
    let (asked, told, joined, marked) = tokio::join!(asking, telling, joining, marking);
    assert!(asked.is_err(), "{asked:?}");
    assert!(told.is_err(), "{told:?}");
    assert!(joined.is_err(), "{joined:?}");
    // Marks in memory need no connection.
    let is_unavailable = matches!(marked, Ok(()) | Err(MarkError::Unavailable(_)));
    assert!(is_unavailable, "{marked:?}");
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());

    // A replica that asks the one that is cut off does not wait for ever either.
    let begun = Instant::now();
    let asked = second.messages.ask(first.id(), "a".into(), within).await;
    assert!(asked.is_err(), "{asked:?}");
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    first.link.restore();
}

/// A member whose connection was broken knows that it may have missed messages.
pub async fn a_restored_replica_is_told_that_it_missed_messages(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let group = group();
    second.messages.join(&group).await.unwrap();
    let before = second.inbox.missed();

    second.link.cut();
    first.messages.tell(&group, "lost".into()).await.unwrap();
    second.link.restore();

    until("the replica is told", || async {
        second.inbox.missed() > before || second.inbox.times(&group, &"lost".into()) == 1
    })
    .await;
}

/// A restored replica is asked and told under its id, and is a member of its groups.
pub async fn a_restored_replica_works_as_before(fixture: &dyn ClusterFixture) {
    let [first, second] = &started(fixture).await;
    let (group, key) = (group(), unique("restored"));
    second.messages.join(&group).await.unwrap();

    for _ in 0..2 {
        second.link.cut();
        second.link.restore();
        works(first, second, &group, &key).await;
        works(second, first, &group, &key).await;
    }
}

async fn works(first: &Started, second: &Started, group: &GroupId, key: &str) {
    until("the replica answers", || async {
        let asked = first.messages.ask(second.id(), "ab".into(), WITHIN).await;
        asked.is_ok_and(|answer| answer == "ba")
    })
    .await;
    until("the marks are there", || async {
        second.marks.set(key.as_bytes(), b"", WITHIN).await.is_ok()
    })
    .await;
    let members = [first, second];
    let received = || {
        let received = members.map(|member| member.inbox.distinct(group));
        received.into_iter().sum::<usize>()
    };
    let before = received();
    until("a message arrives", || async {
        let message = Bytes::from(unique("message"));
        let told = first.messages.tell(group, message).await;
        told.is_ok() && received() > before
    })
    .await;
}

/// [`Cluster::tell`](crate::cluster::Cluster::tell) while the sender is cut off ends in `Missed` at the members.
pub async fn members_learn_of_messages_that_a_sender_could_not_send(fixture: &dyn ClusterFixture) {
    let mut replicas = fixture.replicas(2).await;
    let (receiver, sender) = (replicas.remove(0), replicas.remove(0));
    let link = sender.link.clone();
    let (receiver, sender) = (cluster(receiver), cluster(sender));
    let group = group();
    let mut received = receiver.join(&group).await.unwrap();
    sender.tell(&group, "1".into());
    assert_eq!(next(&mut received).await, Some("1".into()));

    link.cut();
    for _ in 0..3 {
        sender.tell(&group, "lost".into());
    }
    until("the messages are lost", || async {
        sender.counts().lost > 0
    })
    .await;
    link.restore();

    while next(&mut received).await.is_some() {}
    arrives_again(&sender, &mut received, &group, "2".into()).await;
}

/// Whatever the moment of a cut, each message arrives or is followed by `Missed`.
pub async fn no_message_is_lost_in_silence(fixture: &dyn ClusterFixture) {
    let mut replicas = fixture.replicas(2).await;
    let (receiver, sender) = (replicas.remove(0), replicas.remove(0));
    let links = [receiver.link.clone(), sender.link.clone()];
    let (receiver, sender) = (cluster(receiver), cluster(sender));
    let group = group();
    let mut events = receiver.join(&group).await.unwrap();

    for round in 0..4_u8 {
        let link = &links[usize::from(round) % 2];
        let mut sent = 0_usize;
        for number in 0..30_u8 {
            if number == 10 {
                link.cut();
            }
            if number == 20 {
                link.restore();
            }
            sender.tell(&group, vec![round, number].into());
            sent += 1;
            tokio::task::yield_now().await;
        }
        let mut arrived = 0_usize;
        while arrived < sent {
            match event(&mut events).await {
                GroupEvent::Message { body, .. } => arrived += usize::from(body[0] == round),
                GroupEvent::Missed => break,
            }
        }
        // What is still on its way belongs to this round.
        arrives_again(&sender, &mut events, &group, vec![255, round].into()).await;
    }
}

/// Sends a message until it has arrived.
async fn arrives_again(
    sender: &Cluster,
    received: &mut GroupReceiver,
    group: &GroupId,
    message: Bytes,
) {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        match tokio::time::timeout(Duration::from_secs(1), received.next()).await {
            Ok(Some(GroupEvent::Message { body, .. })) if body == message => return,
            Ok(Some(_)) => {}
            Ok(None) => panic!("the cluster has ended"),
            Err(_) => sender.tell(group, message.clone()),
        }
        assert!(Instant::now() < deadline, "messages do not arrive again");
    }
}

/// Returns the next message, or `None` for `Missed`.
async fn next(received: &mut GroupReceiver) -> Option<Bytes> {
    match event(received).await {
        GroupEvent::Message { body, .. } => Some(body),
        GroupEvent::Missed => None,
    }
}

async fn event(received: &mut GroupReceiver) -> GroupEvent {
    let event = tokio::time::timeout(WAIT_LIMIT, received.next()).await;
    let event = event.expect("an event comes, a message or `Missed`");
    event.expect("the cluster has not ended")
}

/// The longest that an operation takes while the engine is away: the 5 s of a driver, or twice that for two steps, and
/// what a busy machine adds.
const LIMIT: Duration = Duration::from_secs(30);
