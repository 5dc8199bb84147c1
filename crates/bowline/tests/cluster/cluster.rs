//! `Cluster` over the engine in memory.

use std::time::Duration;

use bowline::cluster::{AskError, Cluster, GroupEvent, GroupId, MemoryCluster, MemoryReplica};
use bytes::Bytes;
use tokio::time::Instant;

const WITHIN: Duration = Duration::from_secs(5);

fn replicas<const N: usize>() -> [Cluster; N] {
    let memory = MemoryCluster::new();
    [(); N].map(|()| Cluster::from(memory.replica().unwrap()))
}

async fn ask(
    from: &Cluster,
    to: &Cluster,
    service: &str,
    message: &'static str,
) -> Result<Bytes, AskError> {
    from.ask(service, to.replica(), message.into(), WITHIN)
        .await
}

#[tokio::test(start_paused = true)]
async fn a_service_is_asked_by_its_name_while_its_guard_lives() {
    let [first, second] = replicas();
    let upper = second.serve("upper", |asked| {
        Box::pin(async move { asked.message.to_ascii_uppercase().into() })
    });
    let id = second.serve("id", |asked| {
        Box::pin(async move { asked.from.to_string().into() })
    });

    assert_eq!(ask(&first, &second, "upper", "a").await.unwrap(), "A");
    let from = ask(&first, &second, "id", "").await.unwrap();
    assert_eq!(from, first.replica().to_string());
    assert_eq!(ask(&second, &second, "upper", "b").await.unwrap(), "B");
    drop(upper);
    let ended = ask(&first, &second, "upper", "a").await;
    assert!(matches!(ended, Err(AskError::Unavailable(_))), "{ended:?}");
    drop(id);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_service_is_not_ended_by_the_guard_of_its_predecessor() {
    let [first, second] = replicas();
    let old = second.serve("a", |_| Box::pin(async { "old".into() }));
    let _new = second.serve("a", |_| Box::pin(async { "new".into() }));

    drop(old);

    assert_eq!(ask(&first, &second, "a", "").await.unwrap(), "new");
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_other_keys_is_not_understood() {
    let memory = MemoryCluster::new();
    let first = Cluster::from(memory.replica().unwrap());
    let other: MemoryReplica = memory.replica().unwrap();
    let second = Cluster::new(other, memory.marks(), [9; 32]);
    let _service = second.serve("a", |_| Box::pin(async { "secret".into() }));
    let group = GroupId::new("test", "keys");
    let mut received = first.join(&group).await.unwrap();

    let asked = ask(&first, &second, "a", "").await;
    second.tell(&group, "forged".into());
    let told = tokio::time::timeout(WITHIN, received.next()).await;

    assert!(matches!(asked, Err(AskError::Unavailable(_))), "{asked:?}");
    assert!(told.is_err(), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_gone_after_three_seconds_and_then_at_once() {
    let [first, second] = replicas();
    let id = second.replica();
    drop(second);

    let begun = Instant::now();
    let gone = first.ask("a", id, Bytes::new(), WITHIN).await;
    let patient = begun.elapsed();
    let begun = Instant::now();
    let again = first.ask("a", id, Bytes::new(), WITHIN).await;

    assert!(matches!(gone, Err(AskError::ReplicaGone)), "{gone:?}");
    assert!(matches!(again, Err(AskError::ReplicaGone)), "{again:?}");
    assert!(patient > Duration::from_secs(2) && patient <= Duration::from_secs(3));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn too_many_questions_are_refused_and_not_queued() {
    let [first, second] = replicas();
    let _service = second.serve("slow", |_| Box::pin(std::future::pending()));
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..257 {
        let (first, to) = (first.clone(), second.replica());
        waiting.spawn(async move { first.ask("slow", to, Bytes::new(), WITHIN).await });
    }

    let outcomes = waiting.join_all().await;

    let refused = |outcome: &&Result<_, _>| matches!(outcome, Err(AskError::Unavailable(_)));
    let late = |outcome: &&Result<_, _>| matches!(outcome, Err(AskError::TimedOut));
    assert_eq!(outcomes.iter().filter(refused).count(), 1);
    assert_eq!(outcomes.iter().filter(late).count(), 256);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_left_with_its_last_receiver_and_joined_again() {
    let [first, second] = replicas();
    let group = GroupId::new("test", "leave");
    let receivers = [
        first.join(&group).await.unwrap(),
        first.join(&group).await.unwrap(),
    ];
    let [mut one, two] = receivers;
    drop(two);
    second.tell(&group, "1".into());
    let message = |body: &'static str| GroupEvent::Message {
        from: second.replica(),
        body: body.into(),
    };
    assert_eq!(one.next().await, Some(message("1")));

    // Whether the membership has ended already or not, the new receiver gets the next message.
    for body in ["2", "3", "4"] {
        drop(one);
        one = first.join(&group).await.unwrap();
        second.tell(&group, body.into());
        assert_eq!(one.next().await, Some(message(body)));
    }

    drop(one);
    for told in 5..100 {
        let delivered = first.counts().delivered;
        second.tell(&group, "5".into());
        assert!(bowline::testing::eventually(|| second.counts().told == told).await);
        if first.counts().delivered == delivered {
            return;
        }
    }
    panic!("the membership does not end");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_too_slow_is_told_that_it_missed_messages() {
    let [first, second] = replicas();
    let group = GroupId::new("test", "slow");
    let mut received = first.join(&group).await.unwrap();
    for number in 0..100_u8 {
        second.tell(&group, vec![number].into());
    }
    assert!(bowline::testing::eventually(|| first.counts().delivered == 100).await);

    assert_eq!(received.next().await, Some(GroupEvent::Missed));
    assert!(matches!(
        received.next().await,
        Some(GroupEvent::Message { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn receivers_end_with_their_cluster() {
    let [first] = replicas();
    let mut received = first.join(&GroupId::new("test", "end")).await.unwrap();

    drop(first);

    let end = tokio::time::timeout(WITHIN, received.next()).await;
    assert_eq!(end.unwrap(), None);
}
